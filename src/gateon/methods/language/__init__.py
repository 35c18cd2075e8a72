"""Methods for pretrained language models: adapters with masks, capsules, a frozen encoder."""
