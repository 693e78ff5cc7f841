/* A part of the integral of 4 / (1 + x^2) from 0 to 1. */
double part(long part, long parts, long steps)
{
    double width = 1.0 / steps, sum = 0.0;
    for (long i = part; i < steps; i += parts) {
        double x = (i + 0.5) * width;
        sum += 4.0 / (1.0 + x * x);
    }
    return sum * width;
}
