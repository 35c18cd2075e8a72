"""The slow, literal twin of each equation: plain loops over numbers, nothing of gateon imported.

Names of equations are those of the paper. What is fast in the package must equal what is here.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor


def sigma(v: float) -> float:
    """Rectified hyperbolic tangent."""
    return math.tanh(max(v, 0.0))


def gated_layer(
    x: list[float],
    W: list[list[float]],
    b: list[float],
    v: list[float],
    f: Callable[[float], float],
) -> list[float]:
    """Eq. multiplicative: x_i = sigma(v_i) f(sum_j w_ij x_j + b_i)."""
    return [
        sigma(v[i]) * f(sum(W[i][j] * x[j] for j in range(len(x))) + b[i]) for i in range(len(W))
    ]


def removal(loss: Callable[[Tensor], Tensor], values: Tensor) -> Tensor:
    """Eq. causal_effect: (L with value i at zero - L)^2 for every value."""
    whole = loss(values)
    out = torch.zeros_like(values)
    for i in range(values.numel()):
        without = values.clone()
        without.view(-1)[i] = 0
        out.view(-1)[i] = (loss(without) - whole) ** 2
    return out


def unit_relevance(gradient: Tensor, x: Tensor) -> Tensor:
    """Eq. n-mu for (samples, units, positions): per sample the sum over positions of dL/dx x, squared, averaged over samples."""
    samples, units, positions = x.shape
    mu = torch.zeros(units, dtype=x.dtype)
    for i in range(units):
        for n in range(samples):
            contribution = 0.0
            for p in range(positions):
                contribution += float(gradient[n, i, p]) * float(x[n, i, p])
            mu[i] += contribution**2 / samples
    return mu


def stage_relevance(gradients: list[Tensor], xs: list[Tensor]) -> Tensor:
    """Eq. n-mu for units that several layers read: per sample the sum over readers and positions of dL/dx x, squared, averaged.

    For each reader (samples, units, positions); x is what it reads, behind the gate.
    """
    samples, units, _ = xs[0].shape
    mu = torch.zeros(units, dtype=xs[0].dtype)
    for i in range(units):
        for n in range(samples):
            contribution = 0.0
            for gradient, x in zip(gradients, xs, strict=True):
                for p in range(x.shape[2]):
                    contribution += float(gradient[n, i, p]) * float(x[n, i, p])
            mu[i] += contribution**2 / samples
    return mu


def parameter_relevance(gradient: Tensor, theta: Tensor) -> Tensor:
    """Eq. p-mu."""
    pairs = zip(gradient.reshape(-1).tolist(), theta.reshape(-1).tolist(), strict=True)
    return torch.tensor([(g * t) ** 2 for g, t in pairs], dtype=theta.dtype).reshape(theta.shape)


def activity_relevance(x: Tensor) -> Tensor:
    """Eqs. bio-relevance and availabilty_conv for (samples, units, positions)."""
    samples, units, positions = x.shape
    return torch.stack(
        [
            sum(x[n, i, p] ** 2 for n in range(samples) for p in range(positions))
            / (samples * positions)
            for i in range(units)
        ]
    )


def firing_rate_relevance(activities: list[Tensor], steps: float) -> list[Tensor]:
    """Discussion: in every step, mean |x| over samples and positions; a low-pass filter; its square.

    One tensor (samples, units, positions) for each step; so is what is returned, (units,).
    """
    rates = [0.0] * activities[0].shape[1]
    found = []
    for x in activities:
        samples, units, positions = x.shape
        for i in range(units):
            total = 0.0
            for n in range(samples):
                for p in range(positions):
                    total += abs(float(x[n, i, p]))
            rates[i] += (total / (samples * positions) - rates[i]) / steps
        found.append(torch.tensor([rate**2 for rate in rates], dtype=x.dtype))
    return found


def next_layer_relevance(x: Tensor, W: Tensor) -> Tensor:
    """Eq. causallocal: mean over samples of sum_j (w_ji x_i)^2; the 1/N goes with the normalisation."""
    samples, units = x.shape
    mu = torch.zeros(units, dtype=x.dtype)
    for i in range(units):
        for n in range(samples):
            for j in range(len(W)):
                mu[i] += (W[j, i] * x[n, i]) ** 2 / samples
    return mu


def next_layer_gated_relevance(x: Tensor, W: Tensor, slope: Tensor) -> Tensor:
    """Its variant through gate and non-linearity: mean over samples of sum_j (slope_nj w_ji x_i)^2, slope = g_j f'(a_j)."""
    samples, units = x.shape
    mu = torch.zeros(units, dtype=x.dtype)
    for i in range(units):
        for n in range(samples):
            for j in range(len(W)):
                mu[i] += (slope[n, j] * W[j, i] * x[n, i]) ** 2 / samples
    return mu


def normalise(mu: Tensor) -> Tensor:
    """Eq. mujN: N mu_i / sum_j mu_j."""
    total = sum(mu.reshape(-1).tolist())
    return torch.tensor(
        [mu.numel() * m / total for m in mu.reshape(-1).tolist()], dtype=mu.dtype
    ).reshape(mu.shape)


def availability(A: Tensor, mu: Tensor, rate: float, epsilon: float, floor: float = 0.0) -> Tensor:
    """Eq. availabilty: clip(A (1 - rate (mu - epsilon)))."""
    new = [
        min(max(a * (1 - rate * (m - epsilon)), floor), 1.0)
        for a, m in zip(A.reshape(-1).tolist(), mu.reshape(-1).tolist(), strict=True)
    ]
    return torch.tensor(new, dtype=A.dtype).reshape(A.shape)


def steps_until_recovered(
    steps: int,
    a: float,
    b: float,
    rate: float,
    epsilon: float,
    most: int = 10**6,
    rise: float | None = None,
) -> int:
    """Supplement: let A fall for `steps` at relevance a, then count how long it takes at relevance b to come back."""
    start = 0.5  # below the upper bound, so that clipping does not hide anything
    A = start
    for _ in range(steps):
        A *= 1 - rate * (a - epsilon)
    for n in range(most):
        if start <= A:
            return n
        A *= 1 - (rate if rise is None else rise) * (b - epsilon)
    return most


class Released:
    """The rules of the released code for a fully connected network, written for one reader: this test.

    Gate tanh(relu(v))^2 on the pre-activation, then batch norm of the batch without learned scale,
    ReLU, length one over units. Softmax before a cross-entropy that applies softmax again.
    Relevance of units: mean over the batch of (dL/dx x)^2; of parameters: (dL/dtheta theta)^2,
    weights and biases apart. Availability is integrated at every step and multiplies gradients from
    the next switch on; the output layer is neither gated nor obstructed; Adam starts anew at a
    switch.
    """

    def __init__(
        self,
        weights: list[Tensor],
        biases: list[Tensor],
        gates: list[Tensor],
        per: str,
        norm: bool = True,
        eps: float = 1e-8,
    ) -> None:
        self.norm, self.eps = norm, eps
        self.W = [w.clone().requires_grad_() for w in weights]
        self.b = [b.clone().requires_grad_() for b in biases]
        self.v = [v.clone().requires_grad_() for v in gates]  # (contexts, units)
        self.per, self.rate, self.lr = per, 0.01, 5e-3
        hidden = range(len(gates))
        self.A = (
            [torch.ones_like(biases[i]) for i in hidden]
            if per == "unit"
            else [torch.ones_like(weights[i]) for i in hidden]
        )
        self.A_bias = self.A if per == "unit" else [torch.ones_like(biases[i]) for i in hidden]
        self.begin(0)

    def begin(self, context: int) -> None:
        self.context = context
        self.applied = [A.clone() for A in self.A]
        self.applied_bias = [A.clone() for A in self.A_bias]
        parameters = self.W + self.b + self.v
        self.moments = [(p, torch.zeros_like(p), torch.zeros_like(p)) for p in parameters]
        self.t = 0

    def forward(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        hidden = []
        for i, v in enumerate(self.v):
            a = (x @ self.W[i].T + self.b[i]) * torch.tanh(torch.relu(v[self.context])) ** 2
            if self.norm:
                a = (a - a.mean(0)) / torch.sqrt(a.var(0, unbiased=False) + 1e-5)
            a = torch.relu(a)
            x = a / a.norm(dim=1, keepdim=True).clamp_min(1e-12)
            hidden.append(x)
        return x @ self.W[-1].T + self.b[-1], hidden

    def step(self, x: Tensor, y: Tensor) -> None:
        output, hidden = self.forward(x)
        log_p = torch.log_softmax(torch.softmax(output, 1), 1)
        loss = -log_p[torch.arange(len(y)), y].mean()
        parameters = self.W + self.b + self.v
        grads = torch.autograd.grad(loss, parameters + hidden)
        gradient = dict(zip(map(id, parameters), grads, strict=False))
        with torch.no_grad():
            for i, h in enumerate(hidden):
                if self.per == "unit":
                    mu = ((grads[len(parameters) + i] * h) ** 2).mean(0)
                    self.A[i] = self._integrated(self.A[i], mu)
                    self.A_bias = self.A
                    gradient[id(self.W[i])] = gradient[id(self.W[i])] * self.applied[i][:, None]
                    gradient[id(self.b[i])] = gradient[id(self.b[i])] * self.applied[i]
                else:
                    self.A[i] = self._integrated(
                        self.A[i], (gradient[id(self.W[i])] * self.W[i]) ** 2
                    )
                    self.A_bias[i] = self._integrated(
                        self.A_bias[i], (gradient[id(self.b[i])] * self.b[i]) ** 2
                    )
                    gradient[id(self.W[i])] = gradient[id(self.W[i])] * self.applied[i]
                    gradient[id(self.b[i])] = gradient[id(self.b[i])] * self.applied_bias[i]
            self._adam(gradient)

    def _integrated(self, A: Tensor, mu: Tensor) -> Tensor:
        return (A * (1 - self.rate * (mu * mu.numel() / mu.sum()))).clamp(0, 1)

    def _adam(self, gradient: dict[int, Tensor]) -> None:
        self.t += 1
        for p, m, s in self.moments:
            g = gradient[id(p)]
            m.mul_(0.9).add_(0.1 * g)
            s.mul_(0.999).add_(0.001 * g * g)
            p.sub_(
                self.lr * (m / (1 - 0.9**self.t)) / ((s / (1 - 0.999**self.t)).sqrt() + self.eps)
            )


def change_points(
    tables: list[list[float]],
    threshold: float,
    m: int,
    rate_L: float,
    rate_C: float,
    confident: float = 0.9,
) -> list[tuple[int, bool]]:
    """Algorithm 1, the `if not reactivated` moved into the `if` it belongs to: (active context, whether it is new) for every batch.

    `tables[t][k]` is the loss of batch t under context k; contexts beyond its end have the loss of
    its last entry. The minimum is over the last m steps, as the prose says, and asks for m of them;
    the running loss begins with the first loss.
    """

    def forward(t: int, context: int) -> float:
        return tables[t][min(context, len(tables[t]) - 1)]

    active, contexts, confidence = 0, 1, [0.0]
    history: list[float] = []
    running = math.nan
    found = []
    for t in range(len(tables)):
        loss = forward(t, active)
        history.append(loss)
        running = loss if t == 0 else running + rate_L * (-running + loss)
        new = False
        if (
            t >= m - 1
            and min(history[t - m + 1 : t + 1]) > threshold * running
            and confidence[active] > confident
        ):
            reactivated = False
            for test_context in range(contexts):
                if forward(t, test_context) < threshold * running:
                    active = test_context
                    reactivated = True
                    break
            if not reactivated:
                active = contexts
                contexts += 1
                confidence.append(0.0)
                new = True
        confidence[active] = confidence[active] * (1 - rate_C) + rate_C
        found.append((active, new))
    return found


def inherited(
    W: Tensor,
    A: Tensor,
    to_rows: list[int],
    to_columns: list[int],
    rows: list[int],
    columns: list[int],
) -> Tensor:
    """W with w_ij moved towards w_i'j' by its availability, where unit i' of the parent is paired with unit i of the heir."""
    out = W.clone()
    for i, parent_i in zip(to_rows, rows, strict=True):
        for j, parent_j in zip(to_columns, columns, strict=True):
            out[i, j] = W[i, j] + A[i, j] * (W[parent_i, parent_j] - W[i, j])
    return out


def ridge(features, labels, classes, strength):
    """The ridge regression of one-hot labels on features: argmin |H W - Y|^2 + strength |W|^2.

    As least squares over all samples at once, with sqrt(strength) I below H: no sums are kept.
    """
    width = features.shape[1]
    one_hot = torch.eye(classes, dtype=torch.float64)[labels]
    below = strength**0.5 * torch.eye(width, dtype=torch.float64)
    H = torch.cat([features.double(), below])
    Y = torch.cat([one_hot, torch.zeros(width, classes, dtype=torch.float64)])
    return torch.linalg.lstsq(H, Y).solution


def recognised(scores, logits, owner, a, b, c):
    """p(row | x) = p(task | x) p(row | x, task), one sample and one row after another."""
    found = torch.zeros(scores.shape, dtype=torch.float64)
    for n, s in enumerate(scores.double()):
        whole = sum(math.exp(a * v) for v in s)
        for task in set(owner):
            rows = [r for r, own in enumerate(owner) if own == task]
            of_task = sum(math.exp(a * s[r]) for r in rows) / whole
            by_ridge = sum(math.exp(b * s[r]) for r in rows)
            opinions = [math.exp(b * s[r]) / by_ridge for r in rows]
            if logits is not None:
                z = logits[n].double()
                by_network = sum(math.exp(c * z[r]) for r in rows)
                opinions = [
                    (p * math.exp(c * z[r]) / by_network) ** 0.5
                    for p, r in zip(opinions, rows, strict=True)
                ]
            for p, r in zip(opinions, rows, strict=True):
                found[n, r] = of_task * p / sum(opinions)
    return found


def distances_to_class_means(features, labels, classes, x):
    """|x - m_y|^2 for every sample and class, one after another."""
    rows = features.double()
    found = torch.zeros(len(x), classes, dtype=torch.float64)
    for y in range(classes):
        own = [row for row, label in zip(rows, labels.tolist(), strict=True) if label == y]
        mean = sum(own) / len(own)
        for n, sample in enumerate(x.double()):
            found[n, y] = ((sample - mean) ** 2).sum()
    return found


class RankedLayer:
    """y = W x + s sum_i g_i b_i (a_i . x), where a_i is row i of A, b_i column i of B and g_i = 1 + tanh(steepness v_i), or 0 where rank i is closed.

    One step after another on the loss sum |y - t|^2 / 2, by gradient descent with momentum and decay
    added to the gradient. Relevance per rank is eq. n-mu of h_i = g_i (a_i . x), and scales row and
    column; per parameter it is eq. p-mu, apart for A and B. A closed rank does not move.
    """

    def __init__(self, W, A, B, v, s, per, rate, lr, momentum, decay, steepness) -> None:
        self.W, self.A, self.B, self.v, self.s = W.clone(), A.clone(), B.clone(), v.clone(), s
        self.per, self.rate, self.lr, self.momentum = per, rate, lr, momentum
        self.decay, self.steepness = decay, steepness
        ranks = len(A)
        self.running = {
            "A": torch.ones_like(A) if per == "parameter" else torch.ones(ranks, dtype=A.dtype),
            "B": torch.ones_like(B) if per == "parameter" else torch.ones(ranks, dtype=A.dtype),
        }
        self.buffers: dict[str, Tensor] = {}
        self.begin(0)

    def begin(self, context: int) -> None:
        self.context = context
        self.applied = {name: A.clone() for name, A in self.running.items()}

    def gain(self, i: int) -> float:
        v = float(self.v[self.context, i])
        return 0.0 if v < -100 else 1 + math.tanh(self.steepness * v)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        samples, positions, _ = x.shape
        h = torch.zeros(samples, len(self.A), positions, dtype=x.dtype)
        y = torch.zeros(samples, positions, len(self.W), dtype=x.dtype)
        for n in range(samples):
            for p in range(positions):
                for i in range(len(self.A)):
                    h[n, i, p] = self.gain(i) * float(self.A[i] @ x[n, p])
                for o in range(len(self.W)):
                    ranks = sum(float(self.B[o, i] * h[n, i, p]) for i in range(len(self.A)))
                    y[n, p, o] = float(self.W[o] @ x[n, p]) + self.s * ranks
        return y, h

    def step(self, x: Tensor, t: Tensor) -> None:
        y, h = self.forward(x)
        delta = y - t  # dL/dy
        to_h, to_v = torch.zeros_like(h), torch.zeros_like(self.v)
        to_A, to_B = torch.zeros_like(self.A), torch.zeros_like(self.B)
        for n in range(len(x)):
            for p in range(x.shape[1]):
                for i in range(len(self.A)):
                    to_h[n, i, p] = self.s * float(self.B[:, i] @ delta[n, p])
                    to_B[:, i] += self.s * delta[n, p] * h[n, i, p]
                    to_A[i] += to_h[n, i, p] * self.gain(i) * x[n, p]
                    slope = self.steepness * (1 - (self.gain(i) - 1) ** 2)
                    to_v[self.context, i] += to_h[n, i, p] * float(self.A[i] @ x[n, p]) * slope
        if self.per == "unit":
            mu = unit_relevance(to_h, h)
            relevances = {"A": mu, "B": mu}
        else:
            relevances = {
                "A": parameter_relevance(to_A, self.A),
                "B": parameter_relevance(to_B, self.B),
            }
        for name, mu in relevances.items():
            if mu.any():
                self.running[name] = availability(
                    self.running[name], normalise(mu), self.rate, epsilon=0.0
                )
        before = self.A.clone(), self.B.clone(), self.v.clone()
        for name, theta, gradient in (
            ("A", self.A, to_A),
            ("B", self.B, to_B),
            ("v", self.v, to_v),
        ):
            gradient = gradient + self.decay * theta
            kept = self.buffers.get(name)
            self.buffers[name] = gradient if kept is None else self.momentum * kept + gradient
            theta.sub_(self.lr * self.buffers[name])
        A, B, v = before
        for i in range(len(self.A)):
            for j in range(self.A.shape[1]):
                scale = self._scale("A", i, (i, j))
                self.A[i, j] = A[i, j] + scale * (self.A[i, j] - A[i, j])
            for o in range(len(self.B)):
                scale = self._scale("B", i, (o, i))
                self.B[o, i] = B[o, i] + scale * (self.B[o, i] - B[o, i])
        for k in range(len(self.v)):
            if k != self.context:
                self.v[k] = v[k]

    def _scale(self, name: str, rank: int, place: tuple[int, int]) -> float:
        if self.gain(rank) == 0:
            return 0.0
        return float(self.applied[name][rank if self.per == "unit" else place])


def orthogonal_penalty(A, B, old, new, strength, shrink):
    """O-LoRA: strength sum |a_u . a_t| over old rows u and new rows t, and shrink times both norms of what is new."""
    overlap = sum(
        abs(sum(float(A[u, j] * A[t, j]) for j in range(A.shape[1]))) for u in old for t in new
    )
    rows = math.sqrt(sum(float(A[t, j]) ** 2 for t in new for j in range(A.shape[1])))
    columns = math.sqrt(sum(float(B[o, t]) ** 2 for t in new for o in range(B.shape[0])))
    return strength * overlap + shrink * (rows + columns)


def spent(A: Tensor, mu: Tensor, goal: float) -> Tensor:
    """Eq. room: what is above the goal for sum A is taken from each in proportion to A mu; none falls below 0."""
    numbers = list(zip(A.reshape(-1).tolist(), mu.reshape(-1).tolist(), strict=True))
    above = max(sum(a for a, _ in numbers) - goal, 0.0)
    total = sum(a * m for a, m in numbers)
    new = [max(a - above * a * m / total, 0.0) for a, m in numbers]
    return torch.tensor(new, dtype=A.dtype).reshape(A.shape)


def fisher_of_units(gradients: list[Tensor]) -> Tensor:
    """Eq. n-fisher: the squared gradients of all numbers that belong to a unit; units are rows."""
    return torch.tensor(
        [
            sum(float(g) ** 2 for rows in gradients for g in rows[i].reshape(-1))
            for i in range(len(gradients[0]))
        ],
        dtype=gradients[0].dtype,
    )
