"""Trackers: TensorBoard, MLflow, W&B and Trackio behind one small interface.

One file per library, imported when the tracker is asked for. What is told to them is decided in
`runs/tracked.py`.
"""
