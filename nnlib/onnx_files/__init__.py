"""Networks and models as ONNX graphs, read and written."""
