"""The tasks, bit for bit, as they were when the benchmarks' figures were taken: a change here changes every result.

Whole numbers decide them, so that these hashes are the same on every processor.
"""

import os
from pathlib import Path

import pytest

from gateon import streams
from gateon.streams.data import sources

EMBEDDED = {  # (stream, seed): fingerprints of tasks 0, 1, 2 on the 5,000 embedded digits
    ("permuted-mnist", 0): [
        "4776a30ccae241eefc58504e6b3bf4d7967a0021fe880dc9659213a914c6f932",
        "30688f5db9b3a942ce9caf8e43bcf21a9d5db1d5b21501900b544633f033e62c",
        "26233e58e82756d1c159c93cb209dd94a97bb584d699e76a16c4a44d89824a65",
    ],
    ("permuted-mnist", 1): [
        "64babeb64b32f71c8a9f6ec58611371cdd63b4e76b5e5ae1a05b72112ccb4252",
        "a830208eca37f2d58b218aca88d5c97d3224a3adb97d903d536c0f6a5cc213b1",
        "1aaac80c91b78d02b33c85685c32eefadff9622b73563f738ca9dfc1c4fa1b45",
    ],
    ("rotated-mnist", 0): [
        "4776a30ccae241eefc58504e6b3bf4d7967a0021fe880dc9659213a914c6f932",
        "45e1b1b4fba93918f55efef726b8d62f3f479098bc88e700d0e06d0a1942459a",
        "b828a4754d2e1e0e47718f5a96357dc406271c94a90ee5806a9332b6a231558a",
    ],
    ("rotated-mnist", 1): [
        "64babeb64b32f71c8a9f6ec58611371cdd63b4e76b5e5ae1a05b72112ccb4252",
        "15fbf67273f7c74fe58b9827584c8f36587bb9deb7b99188e6564b968aac8afe",
        "1c2c37c280ae9304395fd116c45f2902c05df9beb31ac961652953c20a4c7b2d",
    ],
    ("shuffled-mnist", 0): [
        "4776a30ccae241eefc58504e6b3bf4d7967a0021fe880dc9659213a914c6f932",
        "bda2b8a07a24ba999e646fc66abc958f027fba3b16837a42f3638697c90ba285",
        "e426c03077048be1c5e746038077d6012b2d4e02011d99434237ee2c016e5618",
    ],
    ("shuffled-mnist", 1): [
        "64babeb64b32f71c8a9f6ec58611371cdd63b4e76b5e5ae1a05b72112ccb4252",
        "6992cae2420a073e1552cdebc539008bf3fd39921d1802a09b42ef9940e505ad",
        "dbd642ed87b14136b4fbcc436af7ae1b1bd80a6acc9c5b0ec0f1cd8d24f91a4f",
    ],
    ("split-mnist", 0): [
        "3ddfe2ef401902478b4320a73a50db9c65e5eb3b441b099f9a61944121b1efc4",
        "235122b2e6a4db261112a0c37f3acbd0ac7c7ca9fd32bf51d0bd5d09fd6b3279",
        "cac116ecedeb1aaeef8de023f19fa3230c35a65b9a0a5f4209d3efebf4cc71a8",
    ],
    ("split-mnist", 1): [
        "da19a70cb73e8be2ac961135bd881a0c5cf14091c0f389c7e8a9f25a442a2e3c",
        "9f610847ef3bd0c2b20377b150ccce0a9020809a6037de65eae1268e113b3c63",
        "71d341f51d4cf84d334db420a3e689519a1f86c8f63875df64e506c2604bddc0",
    ],
}
BLURRED = "1a4753c7b8f7bad3c555cc5006b2479c415218d3b847ad4aafc7d95861cad231"
FULL = {  # (stream, seed): fingerprint of task 1 on all of MNIST
    ("permuted-mnist", 0): [
        "cf52b52a09bfdd1d27cd9de72f75ba5efe1094d4bc7674e84892b3a3d28d8769",
    ],
    ("permuted-mnist", 1): [
        "48668272b90ffafebddb149a332b38c9986165599a5bcea9d7cc80a162d6b928",
    ],
    ("rotated-mnist", 0): [
        "501280120270226464786c6f9b36643e61bfc4cbfba6bf4c7dd72ab99355a0de",
    ],
    ("rotated-mnist", 1): [
        "fe0c6b443de046d9d8fca6305506d56593b6fa05296f8cc96913dc61f32bd896",
    ],
    ("shuffled-mnist", 0): [
        "625aeb55823dde7540c87c41e68b762227308dcf1389b7989cbc3883e567229f",
    ],
    ("shuffled-mnist", 1): [
        "97a3e43061270028412e2d791ec0fe741f152a3e5791092c3a42c663b1fa8807",
    ],
    ("split-mnist", 0): [
        "df40744d91f09c486b58bcb86e605654b4d9ce120ff0e0fa2164416cb7b83afd",
    ],
    ("split-mnist", 1): [
        "3f10496598b73bdf8f950611d4f423a3f29d5b4d8d8f07b52fc526455d81856e",
    ],
}


@pytest.fixture(scope="module")
def digits():
    return sources.mnist_5k()


@pytest.mark.numeric
@pytest.mark.parametrize(("name", "seed"), EMBEDDED)
def test_tasks_of_the_embedded_digits(name, seed, digits):
    stream = streams.open(name, tasks=3, seed=seed, data=digits)
    assert [stream.fingerprint(k) for k in range(3)] == EMBEDDED[name, seed]


def test_the_first_task_is_the_same_in_three_of_the_streams():
    for seed in (0, 1):
        assert (
            len(
                {
                    EMBEDDED[name, seed][0]
                    for name in ("permuted-mnist", "rotated-mnist", "shuffled-mnist")
                }
            )
            == 1
        )


@pytest.mark.numeric
def test_a_blurred_task(digits):
    assert (
        streams.blurred(streams.split_mnist(data=digits), width=0.3, seed=0).fingerprint(1)
        == BLURRED
    )


@pytest.fixture(scope="module")
def mnist():
    """All of MNIST, from the data directory or from beside the project; it is not fetched for a test."""
    beside = Path(__file__).parents[3] / "shared" / "data"
    with pytest.MonkeyPatch.context() as patch:
        for place in (os.environ.get("GATEON_DATA"), beside):
            if place and (Path(place) / "mnist" / "train-images-idx3-ubyte.gz").is_file():
                patch.setenv("GATEON_DATA", str(place))
                return sources.mnist()
    pytest.skip("all of MNIST is neither in GATEON_DATA nor in ../shared/data")


@pytest.mark.parametrize(("name", "seed"), FULL)
def test_tasks_of_all_of_mnist(name, seed, mnist):
    assert [streams.open(name, tasks=2, seed=seed, data=mnist).fingerprint(1)] == FULL[name, seed]


def test_the_parts_of_all_of_mnist(mnist):
    task = streams.permuted_mnist(data=mnist)[1]
    assert [len(getattr(task, part)) for part in streams.PARTS] == [55_000, 5_000, 10_000]
    together = task.train.y.bincount() + task.validation.y.bincount()
    assert together.tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert task.test.y.bincount().tolist() == [
        980,
        1135,
        1032,
        1010,
        982,
        892,
        958,
        1028,
        974,
        1009,
    ]
