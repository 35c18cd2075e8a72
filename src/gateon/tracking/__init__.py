"""Trackers: TensorBoard, MLflow, W&B and Trackio behind one small interface.

One file per library; it is imported when a run starts. What is told to them is decided in
`runs/tracked.py`.
"""
