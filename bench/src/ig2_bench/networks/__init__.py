"""The networks that the paper explains, a module for each kind of data: what they are, how they are trained, their settings.

`training.train_network("wafer", samples)` trains one of them; tables have the perceptrons of `perceptron`.
"""
