def run(first, second=1):
    """Returns the sum of two numbers."""
    return first + second
