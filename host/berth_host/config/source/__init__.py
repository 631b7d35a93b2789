"""From text to values that remember their lines, read as kube-scheduler reads them."""
