//! The costs of solutions: any totally ordered type, whether it is minimised or maximised, and, if it is a
//! number, the distance between two costs.

use std::{cmp::Reverse, fmt::Debug};

use ordered_float::{NotNan, OrderedFloat};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// Whether small or large costs are sought.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Goal {
    /// The solution of least cost.
    Minimise,
    /// The solution of greatest cost (or value).
    Maximise,
}

impl Goal {
    /// Returns whether `a` is strictly better than `b`.
    pub fn better<C: Ord>(self, a: &C, b: &C) -> bool {
        match self {
            Self::Minimise => a < b,
            Self::Maximise => a > b,
        }
    }

    /// Returns the better of two costs.
    pub fn best<C: Ord>(self, a: C, b: C) -> C {
        if self.better(&b, &a) { b } else { a }
    }

    /// Returns the other goal.
    #[must_use]
    pub fn opposite(self) -> Self {
        match self {
            Self::Minimise => Self::Maximise,
            Self::Maximise => Self::Minimise,
        }
    }
}

/// The cost or the value of a solution.
///
/// Any totally ordered type will do. Integers are ready to use, and so are floats wrapped to be ordered. Prefer
/// [`NotNan`], which reports a NaN where it is computed. [`OrderedFloat`] orders it above all numbers; a search in
/// which a NaN is the cost of a solution, or a bound, fails. Both are re-exported here. For a type of your own, such
/// as a pair of costs of which the first counts more, an empty implementation is enough:
///
/// ```
/// use bnb_framework::Cost;
/// use serde::{Deserialize, Serialize};
///
/// /// Few trucks first, then few miles.
/// #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
/// struct Tour {
///     trucks: u32,
///     miles: u32,
/// }
///
/// impl Cost for Tour {}
/// ```
///
/// Without [`as_number`](Self::as_number) there are no gaps, and a search with a tolerance is exact.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a cost: costs are totally ordered",
    note = "for f64 or f32, use `bnb_framework::NotNan<f64>` or `OrderedFloat<f64>`; for a type of your own, derive Copy, Ord, \
            Debug, Serialize and Deserialize, and write `impl Cost for MyType {{}}`"
)]
pub trait Cost: Copy + Ord + Debug + Serialize + DeserializeOwned + Send + Sync + 'static {
    /// Returns the cost as a number, for gaps and for display. Returns `None` if it has no such form.
    fn as_number(self) -> Option<f64> {
        None
    }

    /// Returns whether the cost is not a number, which no solution and no bound may be: the job then fails, since
    /// such a cost is neither better nor worse than others. `false` for types without such a value.
    fn is_nan(self) -> bool {
        false
    }

    /// Returns the cost that is worse by the given amount (0 or more), or the last one before it. Returns
    /// `None` if costs are not numbers.
    fn worse_by(self, _goal: Goal, _by: f64) -> Option<Self> {
        None
    }

    /// Returns the next worse cost, with none in between. Returns `None` if there is none, or if the type is
    /// not discrete.
    fn next_worse(self, _goal: Goal) -> Option<Self> {
        None
    }
}

macro_rules! integers {
    ($($integer:ty),*) => {$(
        impl Cost for $integer {
            fn as_number(self) -> Option<f64> {
                Some(self as f64)
            }

            fn worse_by(self, goal: Goal, by: f64) -> Option<Self> {
                let by = by.floor() as Self;
                Some(match goal {
                    Goal::Minimise => self.saturating_add(by),
                    Goal::Maximise => self.saturating_sub(by),
                })
            }

            fn next_worse(self, goal: Goal) -> Option<Self> {
                match goal {
                    Goal::Minimise => self.checked_add(1),
                    Goal::Maximise => self.checked_sub(1),
                }
            }
        }
    )*};
}

#[expect(
    clippy::cast_lossless,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the casts saturate"
)]
mod integers {
    use super::{Cost, Goal};

    integers!(u8, u16, u32, u64, u128, usize, i8, i16, i32, i64, i128, isize);
}

macro_rules! floats {
    ($($float:ty, $inner:ty;)*) => {$(
        impl Cost for $float {
            #[inline]
            fn is_nan(self) -> bool {
                self.into_inner().is_nan()
            }

            fn as_number(self) -> Option<f64> {
                Some(f64::from(self.into_inner())).filter(|number| number.is_finite())
            }

            fn worse_by(self, goal: Goal, by: f64) -> Option<Self> {
                let by = if goal == Goal::Minimise { by } else { -by };
                // The sum of opposite infinities is not a number; keep the cost as it was.
                let worse = <$float>::try_from((f64::from(self.into_inner()) + by) as $inner);
                Some(worse.unwrap_or(self))
            }
        }
    )*};
}

#[expect(clippy::cast_possible_truncation, reason = "to the nearest of its own kind")]
mod floats {
    use super::{Cost, Goal, NotNan, OrderedFloat};

    floats!(NotNan<f32>, f32; NotNan<f64>, f64; OrderedFloat<f32>, f32; OrderedFloat<f64>, f64;);
}

impl<C: Cost> Cost for Reverse<C> {
    fn as_number(self) -> Option<f64> {
        self.0.as_number()
    }

    fn is_nan(self) -> bool {
        self.0.is_nan()
    }

    fn worse_by(self, goal: Goal, by: f64) -> Option<Self> {
        self.0.worse_by(goal.opposite(), by).map(Reverse)
    }

    fn next_worse(self, goal: Goal) -> Option<Self> {
        self.0.next_worse(goal.opposite()).map(Reverse)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_worsen_up_to_their_limits() {
        assert_eq!(7_u8.worse_by(Goal::Minimise, 2.9), Some(9));
        assert_eq!(250_u8.worse_by(Goal::Minimise, 1e9), Some(255));
        assert_eq!(7_u8.worse_by(Goal::Maximise, 9.0), Some(0));
        assert_eq!((255_u8.next_worse(Goal::Minimise), 0_u8.next_worse(Goal::Maximise)), (None, None));
        assert_eq!(Reverse(7_i32).worse_by(Goal::Maximise, 2.0), Some(Reverse(9)));
        let third = NotNan::new(1.0 / 3.0).unwrap();
        assert_eq!(third.next_worse(Goal::Minimise), None, "there is another in between");
        assert!(third.worse_by(Goal::Maximise, 0.25).unwrap() < third);
        let infinite = NotNan::new(f64::INFINITY).unwrap();
        assert_eq!(infinite.worse_by(Goal::Maximise, f64::INFINITY), Some(infinite));
    }
}
