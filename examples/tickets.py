"""Support tickets of three products that came one after another; each has two queues. Made up for the examples."""

from __future__ import annotations

from itertools import product

OPENINGS = ("Hello,", "Hi there,", "Dear team,", "Please help:")
# Product -> queue -> what customers write; the last four of each are kept for testing.
PRODUCTS: dict[str, dict[str, list[str]]] = {
    "shop": {
        "payment": [
            "I was charged twice for one order",
            "my credit card was declined although it is valid",
            "the refund has not reached my bank account",
            "the invoice shows the wrong amount",
            "the discount code was not taken off the price",
            "I paid but the order still says unpaid",
            "please send me a receipt with the tax on it",
            "the price at checkout was higher than advertised",
            "why did you take money for an order I cancelled",
            "my gift voucher is not accepted as payment",
            "you debited my account two times",
            "I am still waiting for my money back",
            "the bill is too high",
            "the voucher did not lower the total",
        ],
        "delivery": [
            "my parcel has not arrived",
            "the courier left the box in the rain",
            "tracking has not moved for a week",
            "the package went to the wrong address",
            "one item is missing from the box",
            "the chair arrived with a broken leg",
            "can you ship to Norway",
            "nobody was at home when the driver came",
            "I received somebody else's order",
            "the shipment is stuck at customs",
            "where is my package",
            "the lamp was smashed when I opened the carton",
            "the driver never rang the bell",
            "half of my order did not come",
        ],
    },
    "app": {
        "crash": [
            "the app closes by itself when I open a photo",
            "the screen freezes after the update",
            "it shows a blank page and then quits",
            "exporting a video stops with an error",
            "the program hangs when I scroll",
            "after the start it crashes at once",
            "the editor is so slow that nothing reacts",
            "saving a file gives an unknown error",
            "the battery drains while the app is open",
            "the buttons stop reacting after a minute",
            "it keeps shutting down on my tablet",
            "everything hangs as soon as I record sound",
            "a fault appears whenever I print",
            "the window goes black and stays so",
        ],
        "login": [
            "I forgot my password",
            "the code by text message never comes",
            "it says my user name does not exist",
            "my account is locked after three attempts",
            "the link to reset the password has expired",
            "I cannot sign in with my new phone number",
            "two-factor authentication refuses my code",
            "it asks me to sign in again every day",
            "the fingerprint is no longer accepted for sign-in",
            "I have a new email address and cannot get in",
            "how do I choose a new password",
            "the verification code is rejected",
            "I am shut out of my account",
            "signing in fails on my laptop",
        ],
    },
    "bank": {
        "card": [
            "my card was stolen on the train",
            "the cash machine kept my card",
            "I need a new PIN for my debit card",
            "contactless does not work in shops",
            "please raise the limit of my credit card",
            "my new card has not come by post",
            "the chip of the card is scratched",
            "block my card at once",
            "can I use this card abroad",
            "the name on the card is misspelt",
            "I lost my wallet with the card in it",
            "the machine swallowed my debit card",
            "I would like a second card for my wife",
            "the card is refused at every till",
        ],
        "loan": [
            "how much can I borrow for a house",
            "the interest on my mortgage went up",
            "I want to repay my loan early",
            "can I skip one instalment",
            "which papers do you need for a car loan",
            "my application for credit was refused",
            "please send the repayment plan",
            "how long is the offer for the mortgage valid",
            "can my brother be a guarantor",
            "I would like to change the monthly rate",
            "what does it cost to pay back sooner",
            "is the mortgage rate fixed for ten years",
            "may I pause the repayments",
            "I need money to buy a flat",
        ],
    },
}
HELD_OUT = 4


def tickets(name: str, *, test: bool) -> tuple[list[str], list[int]]:
    """Texts and queues (0 or 1) of one product."""
    texts, labels = [], []
    for label, written in enumerate(PRODUCTS[name].values()):
        part = written[-HELD_OUT:] if test else written[:-HELD_OUT]
        texts += [f"{opening} {text}." for opening, text in product(OPENINGS, part)]
        labels += [label] * (len(OPENINGS) * len(part))
    return texts, labels


def show(title: str, rows: list[list[float]]) -> None:
    """Accuracy on every product seen so far, after each of them."""
    print(f"\n{title}\n{'':14}" + "".join(f"{name:>10}" for name in PRODUCTS))
    for name, row in zip(PRODUCTS, rows, strict=True):
        print(f"after {name:8}" + "".join(f"{100 * value:9.0f}%" for value in row))
