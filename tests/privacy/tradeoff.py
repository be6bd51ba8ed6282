"""The trade-off of the ideal Gaussian mechanism by integration, in ball arithmetic."""

from __future__ import annotations

from fractions import Fraction

from flint import acb, arb, ctx, fmpq


def exact(value):
    """A decimal as written, or a fraction, as a ball."""
    number = Fraction(repr(value)) if isinstance(value, float) else Fraction(value)
    return arb(fmpq(number.numerator, number.denominator))


def hockey_stick(epsilon, mu, bits=400):
    """δ(ε) of N(0, 1) against N(μ, 1) by integrating max(0, p − e^ε q): an enclosing ball.

    p = φ(x − μ) exceeds e^ε φ(x) exactly beyond x₀ = ε/μ + μ/2; with x = x₀ + y the integrand is
    φ(x₀ − μ + y)·(1 − e^{−μ y}). The range ends where what is left is below 2^{-bits} of φ at x₀.
    """
    with ctx.workprec(bits):
        e, m = exact(epsilon), exact(mu)
        start = e / m - m / 2
        norm = 1 / (2 * arb.pi()).sqrt()

        def integrand(y, _):
            return norm * (-((acb(start) + y) ** 2) / 2).exp() * (1 - (-acb(m) * y).exp())

        # From `end` on the density has fallen by e^{-200}; all beyond is at most its normal tail.
        end = ((start**2 + 400).sqrt() - start).mid()
        tail = ((start + end) / arb(2).sqrt()).erfc() / 2
        tolerance = (-(arb.max(start, arb(0)) ** 2) / 2).exp() * arb(2) ** -250
        inside = acb.integral(integrand, 0, end, rel_tol=arb(2) ** -200, abs_tol=tolerance).real
        return inside + tail.union(arb(0))


def delta_against(bound, epsilon, mu):
    """−1 or 1 as δ(ε) at μ is below or above the bound; a ball that leaves a doubt is an error."""
    with ctx.workprec(400):
        difference = hockey_stick(epsilon, mu) - exact(bound)
        assert (difference > 0) or (difference < 0), "the ball is too wide to decide"
        return 1 if difference > 0 else -1
