//! Raising the bound: the multipliers of cities with too many edges grow, those of cities with too few
//! shrink, by steps that become smaller (M. Held, P. Wolfe and H. P. Crowder, *Validation of subgradient
//! optimization*, 1974). A step goes in the direction of the last two one-trees, which damps the zigzag
//! (T. Volgenant and R. Jonker, 1982; K. Helbig Hansen and J. Krarup, *Improvements of the Held-Karp
//! algorithm for the symmetric traveling-salesman problem*, 1974).

use super::{SCALE, graph::Arcs, tree::OneTree};

/// The maximum absolute value of a multiplier: far more than ever needed, and small enough that no sum
/// overflows.
const MULTIPLIER_MAX: i64 = 1 << 42;

/// The sufficient bound while no tour is known: more than any bound.
pub(super) const UNKNOWN: i64 = i64::MAX / 4;

/// The step size of the multipliers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Pace {
    /// A share of the mean length of an edge of a tour for each edge too many.
    Mean { first: f64, last: f64 },
    /// A share of the distance to the sufficient bound, if that is known.
    Gap { first: f64, last: f64 },
}

/// A series of steps.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Plan {
    pub(super) steps: u32,
    pub(super) pace: Pace,
}

/// The outcome of a series of steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ascent {
    /// All steps were made, or the bound is enough, or the one-tree is a tour.
    Done,
    /// This many steps were made; the rest is left for another time.
    Unfinished(u32),
    /// There is no one-tree.
    Impossible,
}

impl Plan {
    /// Returns how far a step moves a multiplier for each edge too many.
    fn step(&self, taken: u32, bound: i64, enough: i64, off: i32, cities: usize) -> f64 {
        let part = f64::from(taken) / f64::from(self.steps.max(2) - 1);
        let between = |first: f64, last: f64| first * (last / first).powf(part);
        let goal = if enough < UNKNOWN { enough } else { bound.max(SCALE) };
        match self.pace {
            Pace::Mean { first, last } => between(first, last) * goal as f64 / cities as f64,
            Pace::Gap { first, last } => {
                // As far as seems reasonable while no tour is known.
                let gap = if enough < UNKNOWN { enough - bound } else { goal / 20 };
                between(first, last) * gap.max(SCALE) as f64 / f64::from(off)
            }
        }
    }
}

/// Makes steps `taken` and later of a plan, at most `steps_max`. Leaves the best multipliers in
/// `multipliers`, and their one-tree in `best`.
pub(super) fn ascend(
    arcs: &impl Arcs,
    multipliers: &mut [i64],
    [best, trial]: [&mut OneTree; 2],
    enough: i64,
    plan: &Plan,
    (taken, steps_max): (u32, u32),
) -> Ascent {
    if !best.build(arcs, multipliers) {
        return Ascent::Impossible;
    }
    let mut moved = multipliers.to_vec();
    let mut degree = best.degree.clone();
    let mut before = degree.clone();
    let mut bound = best.bound;
    for step in taken..plan.steps {
        let off: i32 = degree.iter().map(|d| (d - 2) * (d - 2)).sum();
        if off == 0 || best.bound > enough {
            break;
        }
        if step - taken >= steps_max {
            return Ascent::Unfinished(step);
        }
        let length = plan.step(step, bound, enough, off, arcs.cities());
        for ((multiplier, d), b) in moved.iter_mut().zip(&degree).zip(&before) {
            let direction = 0.7 * f64::from(d - 2) + 0.3 * f64::from(b - 2);
            #[allow(clippy::cast_possible_truncation, reason = "any multiplier gives a valid bound")]
            let change = (length * direction) as i64;
            *multiplier = (*multiplier + change).clamp(-MULTIPLIER_MAX, MULTIPLIER_MAX);
        }
        if !trial.build(arcs, &moved) {
            return Ascent::Impossible;
        }
        before.clone_from(&degree);
        degree.clone_from(&trial.degree);
        bound = trial.bound;
        if trial.bound > best.bound {
            std::mem::swap(best, trial);
            multipliers.copy_from_slice(&moved);
        }
    }
    Ascent::Done
}
