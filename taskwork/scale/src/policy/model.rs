//! The speed of a search by the number of workers, learnt while it runs.
//!
//! With p workers, the useful share of a worker's time is E(p) = 1 / (1 + α(p − 1) + βp(p − 1)): the universal
//! scalability law of N. Gunther. α is the loss by contention, β the loss by communication between pairs of workers.
//! Both are fitted by least squares to windows of ten seconds, with a lower weight for older windows.
//!
//! E is measured in two ways, and the lower value counts: by the share of time in which workers have a task, and by
//! the units of work for each second of a worker. Only the second includes memory that all cores of a machine share,
//! and slower machines. It needs windows with different numbers of workers; none are tried just to measure.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The age at which the weight of a window is halved.
const HALF_LIFE_MS: f64 = 600_000.0;
/// The ratio between neighbouring classes of worker counts, each of which keeps one mean.
const CLASS_RATIO: f64 = 1.15;
/// The prior means and standard deviations of α and β: from simulated clusters of up to 1,000 nodes
/// (`docs/scaling.md`), and from the spread among programs.
const PRIOR: [(f64, f64); 2] = [(1.5e-4, 2e-3), (7e-8, 2e-6)];
/// The minimum relative error of a window, which includes the error of the model.
const NOISE_MIN: f64 = 0.03;
/// Units of work are used only if the largest number of workers is this many times the smallest.
const SPREAD_MIN: f64 = 1.5;

/// The learnt efficiency of a program.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Efficiency {
    busy: Fit,
    units: Fit,
}

/// The measurements of a window.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Window {
    /// The time of its end.
    pub(super) at_ms: u64,
    /// The mean number of workers.
    pub(super) workers: f64,
    /// The share of time in which they had a task.
    pub(super) busy_share: f64,
    /// The seconds of one worker for each unit of work, if units are counted.
    pub(super) seconds_for_unit: Option<f64>,
}

impl Efficiency {
    /// Learns from a window with enough work.
    pub(super) fn learn(&mut self, window: &Window) {
        if window.busy_share > 0.01 {
            self.busy.add(window.at_ms, window.workers, 1.0 / window.busy_share.min(1.0));
        }
        if let Some(seconds) = window.seconds_for_unit
            && (1e-15..1e15).contains(&seconds)
        {
            self.units.add(window.at_ms, window.workers, seconds);
        }
    }

    pub(super) fn curves(&self) -> Curves {
        let busy = self.busy.curve(Some(1.0));
        let units = (self.units.spread() >= SPREAD_MIN).then(|| self.units.curve(None));
        Curves { busy, units }
    }
}

/// The two curves; the lower one counts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Curves {
    busy: Curve,
    units: Option<Curve>,
}

/// α and β.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Curve {
    alpha: f64,
    beta: f64,
}

impl Curve {
    fn at(self, workers: f64) -> f64 {
        let others = (workers - 1.0).max(0.0);
        1.0 / (1.0 + self.alpha * others + self.beta * workers * others)
    }
}

impl Curves {
    /// Returns E(p), from 0 to 1.
    pub(super) fn efficiency(&self, workers: f64) -> f64 {
        let busy = self.busy.at(workers);
        self.units.map_or(busy, |units| units.at(workers).min(busy))
    }

    /// Returns the value of a second of a busy worker in a cluster of this size, relative to a single worker.
    pub(super) fn worth(&self, workers: f64) -> f64 {
        self.efficiency(workers) / self.busy.at(workers)
    }
}

/// Means of the measurements, by classes of worker counts.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
struct Fit {
    classes: BTreeMap<i32, Class>,
    latest_ms: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
struct Class {
    workers: f64,
    /// The mean value, and the mean square of the relative deviations from it.
    value: f64,
    deviation: f64,
    weight: f64,
    at_ms: u64,
}

impl Class {
    fn weight_at(&self, at_ms: u64) -> f64 {
        self.weight * (-(at_ms.saturating_sub(self.at_ms) as f64) / HALF_LIFE_MS).exp2()
    }
}

impl Fit {
    fn add(&mut self, at_ms: u64, workers: f64, value: f64) {
        if workers < 1.0 || at_ms < self.latest_ms {
            return;
        }
        self.latest_ms = at_ms;
        // The number of workers is below 2^32, the class below 160.
        #[expect(clippy::cast_possible_truncation, reason = "small, see above")]
        let class = self.classes.entry((workers.ln() / CLASS_RATIO.ln()).round() as i32).or_default();
        let before = class.weight_at(at_ms);
        let part = 1.0 / (before + 1.0);
        let off = if before > 0.0 { (value - class.value) / value } else { 0.0 };
        class.workers += (workers - class.workers) * part;
        class.value += (value - class.value) * part;
        class.deviation += (off * off - class.deviation) * part;
        class.weight = before + 1.0;
        class.at_ms = at_ms;
    }

    fn spread(&self) -> f64 {
        let workers = |class: &Class| class.workers;
        match (self.classes.values().next().map(workers), self.classes.values().next_back().map(workers)) {
            (Some(least), Some(most)) => most / least,
            _ => 1.0,
        }
    }

    /// Fits the curve. Without a given intercept, the intercept is fitted too.
    fn curve(&self, intercept: Option<f64>) -> Curve {
        let least = self.classes.values().map(|class| class.value).fold(f64::INFINITY, f64::min);
        let unit = if intercept.is_none() && least.is_finite() { least } else { 1.0 };
        let noise = self.noise();
        // Normal equations of value = a + b(p - 1) + cp(p - 1), where b = aα and c = aβ. The prior is one more
        // observation of b and of c.
        let mut matrix = [[0.0; 3]; 3];
        let mut right = [0.0; 3];
        let mut add = |row: [f64; 3], value: f64, weight: f64| {
            for i in 0..3 {
                for j in 0..3 {
                    matrix[i][j] += weight * row[i] * row[j];
                }
                right[i] += weight * row[i] * value;
            }
        };
        for class in self.classes.values() {
            let (p, value) = (class.workers, class.value / unit);
            let weight = class.weight_at(self.latest_ms) / (noise * value).powi(2);
            add([1.0, p - 1.0, p * (p - 1.0)], value, weight);
        }
        add([1.0, 0.0, 0.0], 1.0, intercept.map_or(1e-6, |_| 1e12));
        add([0.0, 1.0, 0.0], PRIOR[0].0, PRIOR[0].1.powi(-2));
        add([0.0, 0.0, 1.0], PRIOR[1].0, PRIOR[1].1.powi(-2));
        let [a, b, c] = not_negative(&matrix, &right);
        let a = a.max(1e-9);
        Curve { alpha: b / a, beta: c / a }
    }

    fn noise(&self) -> f64 {
        let (mut sum, mut weights) = (0.0, 0.0);
        for class in self.classes.values() {
            let weight = class.weight_at(self.latest_ms);
            sum += class.deviation * weight;
            weights += weight;
        }
        if weights > 0.0 { (sum / weights).sqrt().max(NOISE_MIN) } else { NOISE_MIN }
    }
}

/// Solves the normal equations under the condition that the second and the third unknown are not negative: the best
/// of the four solutions in which each is free or 0.
fn not_negative(matrix: &[[f64; 3]; 3], right: &[f64; 3]) -> [f64; 3] {
    let free_first = [[true, true, true], [true, true, false], [true, false, true]];
    let mut best = ([right[0] / matrix[0][0], 0.0, 0.0], f64::INFINITY);
    for free in free_first {
        let (mut part, mut part_right) = (*matrix, *right);
        for i in (0..3).filter(|i| !free[*i]) {
            part[i] = [0.0; 3];
            for row in &mut part {
                row[i] = 0.0;
            }
            part[i][i] = 1.0;
            part_right[i] = 0.0;
        }
        let Some(solution) = solve(part, part_right) else { continue };
        let loss = loss(matrix, right, &solution);
        if solution[1] >= 0.0 && solution[2] >= 0.0 && loss < best.1 {
            best = (solution, loss);
        }
    }
    best.0
}

/// The sum of squares, up to a constant.
fn loss(matrix: &[[f64; 3]; 3], right: &[f64; 3], x: &[f64; 3]) -> f64 {
    let rows = 0..3;
    rows.map(|i| x[i] * ((0..3).map(|j| matrix[i][j] * x[j]).sum::<f64>() - 2.0 * right[i])).sum()
}

/// Solves a symmetric, positive definite system. The unknowns differ by many orders of magnitude, so it is scaled to
/// a diagonal of ones first.
fn solve(mut matrix: [[f64; 3]; 3], mut right: [f64; 3]) -> Option<[f64; 3]> {
    let scale = [0, 1, 2].map(|i: usize| matrix[i][i].sqrt());
    if scale.iter().any(|factor| !factor.is_normal()) {
        return None;
    }
    for i in 0..3 {
        for j in 0..3 {
            matrix[i][j] /= scale[i] * scale[j];
        }
        right[i] /= scale[i];
    }
    for i in 0..3 {
        if matrix[i][i] < 1e-12 {
            return None;
        }
        let pivot = matrix[i];
        for row in i + 1..3 {
            let factor = matrix[row][i] / pivot[i];
            for (value, above) in matrix[row].iter_mut().zip(pivot) {
                *value -= factor * above;
            }
            right[row] -= factor * right[i];
        }
    }
    let mut x = [0.0; 3];
    for i in (0..3).rev() {
        let known: f64 = (i + 1..3).map(|j| matrix[i][j] * x[j]).sum();
        x[i] = (right[i] - known) / matrix[i][i];
    }
    Some([0, 1, 2].map(|i: usize| x[i] / scale[i]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taught(alpha: f64, beta: f64, sizes: &[f64], worth: impl Fn(f64) -> f64) -> Curves {
        let truth = Curve { alpha, beta };
        let mut learnt = Efficiency::default();
        for (at, workers) in (0..).zip(sizes.iter().cycle().take(sizes.len() * 10)) {
            // Deterministic noise of 2 %.
            let busy_share = truth.at(*workers) * (1.0 + 0.02 * f64::from(at * 7 % 3 - 1));
            let seconds_for_unit = Some(3.0 / (busy_share * worth(*workers)));
            let at_ms = u64::try_from(at).unwrap() * 10_000;
            learnt.learn(&Window { at_ms, workers: *workers, busy_share, seconds_for_unit });
        }
        learnt.curves()
    }

    #[test]
    fn fit_of_windows_finds_curve() {
        for (alpha, beta) in [(0.0, 0.0), (0.01, 0.0), (0.001, 1e-5), (1e-4, 1e-6)] {
            let truth = Curve { alpha, beta };
            let curves = taught(alpha, beta, &[4.0, 12.0, 28.0, 60.0, 124.0], |_| 1.0);
            for workers in [8.0, 100.0, 200.0] {
                let (is, was) = (curves.efficiency(workers), truth.at(workers));
                assert!((is / was - 1.0).abs() < 0.1, "{alpha} {beta}: {is} for {was} at {workers}");
            }
        }
    }

    #[test]
    fn fit_without_windows_follows_prior() {
        let curves = Efficiency::default().curves();
        for (workers, was) in [(10.0, 0.972), (50.0, 0.96), (200.0, 0.935), (500.0, 0.893), (1000.0, 0.82)] {
            assert!(
                (curves.efficiency(workers) - was).abs() < 0.04,
                "{workers}: {}",
                curves.efficiency(workers)
            );
        }
        // A small cluster that is badly used is weak evidence about a large one.
        let small = taught(0.05, 0.0, &[2.0], |_| 1.0);
        assert!(small.efficiency(100.0) < curves.efficiency(100.0));
        assert!(small.efficiency(100.0) > 0.3, "{small:?}");
    }

    #[test]
    fn units_of_work_lower_efficiency_below_busy_share() {
        let shared = |workers: f64| 1.0 / (1.0 + 0.004 * (workers - 1.0));
        let curves = taught(1e-4, 0.0, &[4.0, 12.0, 28.0, 60.0, 124.0], shared);
        assert!((curves.efficiency(124.0) / shared(124.0) - 1.0).abs() < 0.1, "{}", curves.efficiency(124.0));
        assert!(curves.worth(124.0) < 0.8, "and the time of a busy worker is worth less");
        let alone = taught(1e-4, 0.0, &[124.0], shared);
        assert!(alone.units.is_none(), "one size says nothing about that");
    }

    #[test]
    fn fit_forgets_slowly_and_ignores_invalid_windows() {
        let mut learnt = Efficiency::default();
        for at in 0..400_u64 {
            let busy_share = if at < 200 { 0.5 } else { 0.98 };
            let seconds_for_unit = [None, Some(0.0), Some(f64::NAN), Some(f64::INFINITY)][(at % 4) as usize];
            learnt.learn(&Window { at_ms: at * 10_000, workers: 100.0, busy_share, seconds_for_unit });
        }
        assert!(learnt.curves().efficiency(100.0) > 0.9, "{}", learnt.curves().efficiency(100.0));
        learnt.learn(&Window { at_ms: 5, workers: 0.0, busy_share: 0.0, seconds_for_unit: None });
        assert!(learnt.curves().efficiency(1e9).is_finite() && learnt.curves().efficiency(0.0) <= 1.0);
        assert!(learnt.units.classes.is_empty());
    }
}
