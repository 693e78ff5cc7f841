//! Selection of the best size: the lowest cost, or the shortest time, among the sizes that keep the bounds.

use super::{
    Bound,
    forecast::{Forecast, Outlook, Size},
};

/// The ratio between neighbouring sizes that are compared.
const GRID: f64 = 1.15;
/// The minimum probability of meeting a deadline.
const IN_TIME_MIN: f64 = 0.95;
/// The same if machines are given up, since replacing them takes minutes.
const IN_TIME_FEWER_MIN: f64 = 0.98;
/// The minimum useful share of the time of the last workers added, if the user sets neither an efficiency nor a price
/// of delay.
const MARGIN_MIN: f64 = 1.0 / 3.0;
/// The relative gain over the present size that justifies a change.
const GAIN_MIN: f64 = 0.05;
/// The minimum useful share if the deadline cannot be met: almost any price is accepted.
const LATE_MARGIN_MIN: f64 = 0.05;
/// If no size is certain to meet the deadline, the cheapest one counts whose probability is lower than the highest one by at
/// most this; if that is below the second value, the fastest size counts.
const IN_TIME_NEAR: f64 = 0.02;
pub(super) const IN_TIME_HOPE: f64 = 0.5;
/// The tolerance of the useful share for machines that are already running, since it is measured with an error.
const MARGIN_ROOM: f64 = 0.08;
/// The time that a budget must last while the end cannot be predicted, in seconds.
const EARLY_S: f64 = 600.0;

/// A size with its forecast.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Judged {
    pub(super) size: Size,
    pub(super) forecast: Forecast,
    /// The quantity to minimise: money or seconds.
    pub(super) value: f64,
    /// The bounds that it breaks, the most important first.
    pub(super) breaks: Vec<Bound>,
    /// Whether new machines would start too late to be useful.
    pub(super) is_late: bool,
    /// The useful share of the last worker's time.
    margin: f64,
}

/// The quantity to minimise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Aim {
    /// The cost of the machines, and of the delay if it has a price.
    Cost,
    /// The time of workers, if there is a deadline but prices are unknown.
    WorkerTime,
    /// The time until the jobs are finished.
    Time,
}

impl Judged {
    /// Returns the probability of meeting the deadline; 0 for a size that is not worth its machines even then.
    pub(super) fn in_time(&self) -> f64 {
        self.forecast.in_time.filter(|_| self.margin >= LATE_MARGIN_MIN).unwrap_or(0.0)
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Choice {
    pub(super) aim: Aim,
    /// All sizes that were compared, from few machines to many.
    pub(super) judged: Vec<Judged>,
    pub(super) best: usize,
    /// The index of the present size, if it was compared.
    pub(super) now: Option<usize>,
    /// The bound that no size keeps.
    pub(super) broken: Option<Bound>,
}

impl Choice {
    pub(super) fn best(&self) -> &Judged {
        &self.judged[self.best]
    }

    /// Whether the present size breaks the budget or the deadline.
    pub(super) fn is_urgent(&self) -> bool {
        let breaks = |judged: &Judged| judged.breaks.iter().any(|bound| *bound != Bound::Efficiency);
        self.now.is_none_or(|now| breaks(&self.judged[now]))
    }

    /// Whether the best size is so much better than the present one that a change is worthwhile.
    pub(super) fn is_worth_it(&self) -> bool {
        let Some(now) = self.now.map(|now| &self.judged[now]) else { return true };
        let best = self.best();
        let gains = |measure: &dyn Fn(&Judged) -> f64| measure(best) < measure(now) * (1.0 - GAIN_MIN);
        best.breaks.first() != now.breaks.first()
            || match self.broken {
                Some(Bound::Deadline) if best.in_time() >= IN_TIME_HOPE => {
                    let is_as_sure = best.in_time() + IN_TIME_NEAR >= now.in_time();
                    best.in_time() > now.in_time() + IN_TIME_NEAR
                        || is_as_sure && gains(&|judged| judged.value)
                }
                Some(bound) => gains(&|judged| least_broken(bound, judged)),
                None => gains(&|judged| judged.value),
            }
    }
}

/// Returns the sizes to compare: the bounds, the present size, and a grid between them with a ratio of 1.15.
pub(super) fn grid(min: u32, max: u32, now: u32) -> Vec<u32> {
    let min = min.min(max);
    let mut sizes = vec![min, max, now.max(min).min(max)];
    let mut size = min;
    while size < max {
        // Below 2^32, since it is below the maximum before it is rounded.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bounded, see above")]
        let next = (f64::from(size) * GRID).round().min(f64::from(max)) as u32;
        size = next.max(size.saturating_add(1));
        sizes.push(size.min(max));
    }
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

/// Evaluates the sizes; `None` if there is no work or no size.
pub(super) fn choose(outlook: &Outlook<'_>, sizes: &[u32]) -> Option<Choice> {
    let forecasts: Vec<(Size, Forecast)> = sizes
        .iter()
        .map_while(|nodes| outlook.size(*nodes))
        .filter_map(|size| outlook.forecast(&size).map(|forecast| (size, forecast)))
        .collect();
    let least = forecasts.first()?.0.nodes;
    let aim = aim(outlook, &forecasts);
    let judged: Vec<Judged> = forecasts
        .into_iter()
        .map(|(size, forecast)| {
            let value = match aim {
                Aim::Cost => forecast.total.unwrap_or(f64::INFINITY),
                Aim::WorkerTime => forecast.mean_s * size.workers,
                Aim::Time => forecast.mean_s,
            };
            let breaks = broken_bounds(outlook, aim, &size, &forecast, size.nodes <= least.max(1));
            let is_late = outlook.comes_too_late(&size, &forecast);
            let margin = outlook.margin(size.workers);
            Judged { size, forecast, value, breaks, is_late, margin }
        })
        .collect();
    let now = judged.iter().position(|judged| judged.size.nodes == outlook.nodes_now());
    let (best, broken) = best(&judged);
    Some(Choice { aim, judged, best, now, broken })
}

fn aim(outlook: &Outlook<'_>, forecasts: &[(Size, Forecast)]) -> Aim {
    let goals = outlook.goals;
    let are_priced = forecasts.iter().all(|(_, forecast)| forecast.total.is_some());
    match (goals.delay_price, goals.deadline_ms) {
        (Some(_), _) | (_, Some(_)) if are_priced => Aim::Cost,
        (None, Some(_)) => Aim::WorkerTime,
        _ => Aim::Time,
    }
}

fn broken_bounds(
    outlook: &Outlook<'_>,
    aim: Aim,
    size: &Size,
    forecast: &Forecast,
    is_least: bool,
) -> Vec<Bound> {
    let goals = outlook.goals;
    let mut breaks = Vec::new();
    if let Some(budget) = goals.budget {
        let money = match forecast.money {
            Some((_, most)) if !outlook.is_early => Some(most),
            Some((_, most)) => outlook.bill(size, EARLY_S).map(|soon| soon.min(most)),
            None => None,
        };
        if money.is_some_and(|money| outlook.spent + money > budget) {
            breaks.push(Bound::Budget);
        }
    }
    let is_fewer = size.nodes < outlook.nodes_now();
    let in_time_min = if is_fewer { IN_TIME_FEWER_MIN } else { IN_TIME_MIN };
    if forecast.in_time.is_some_and(|in_time| in_time < in_time_min) {
        breaks.push(Bound::Deadline);
    }
    let floor = goals.efficiency.or((aim == Aim::Time).then_some(MARGIN_MIN));
    let is_more = size.nodes > outlook.nodes_now();
    let floor = floor.map(|floor| if is_more { floor } else { floor - MARGIN_ROOM });
    if floor.is_some_and(|floor| !is_least && outlook.margin(size.workers) < floor) {
        breaks.push(Bound::Efficiency);
    }
    breaks
}

/// Returns the index of the best size, and the bound that no size keeps. The budget takes precedence over the
/// deadline, and the deadline over the efficiency.
fn best(judged: &[Judged]) -> (usize, Option<Bound>) {
    let can_work = |place: &usize| judged[*place].size.workers > 0.0 && !judged[*place].is_late;
    let mut left: Vec<usize> = (0..judged.len()).filter(can_work).collect();
    if left.is_empty() {
        left.push(0);
    }
    for bound in [Bound::Budget, Bound::Deadline, Bound::Efficiency] {
        let kept: Vec<usize> =
            left.iter().copied().filter(|place| !judged[*place].breaks.contains(&bound)).collect();
        let most = left.iter().map(|place| judged[*place].in_time()).fold(0.0, f64::max);
        if kept.is_empty() && bound == Bound::Deadline && most >= IN_TIME_HOPE {
            left.retain(|place| judged[*place].in_time() + IN_TIME_NEAR >= most);
            return (least(&left, |place| judged[place].value), Some(bound));
        }
        if kept.is_empty() {
            return (least(&left, |place| least_broken(bound, &judged[place])), Some(bound));
        }
        left = kept;
    }
    (least(&left, |place| judged[place].value), None)
}

/// The quantity to minimise if no size keeps a bound.
fn least_broken(bound: Bound, judged: &Judged) -> f64 {
    match bound {
        Bound::Budget => judged.forecast.money.map_or(f64::INFINITY, |(_, most)| most),
        // The earliest end, but not at any price.
        Bound::Deadline if judged.margin < LATE_MARGIN_MIN => f64::INFINITY,
        Bound::Deadline => judged.forecast.takes_s[1],
        Bound::Efficiency => f64::from(judged.size.nodes),
    }
}

/// The index with the least value; among equal values, the one with the fewest machines.
fn least(places: &[usize], value: impl Fn(usize) -> f64) -> usize {
    let mut best = places[0];
    for place in &places[1..] {
        if value(*place) < value(best) * (1.0 - 1e-9) {
            best = *place;
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grid_contains_bounds_and_is_fine_for_small_sizes() {
        assert_eq!(grid(0, 10, 3), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
        let sizes = grid(2, 1000, 177);
        assert_eq!((sizes.first(), sizes.last()), (Some(&2), Some(&1000)));
        assert!(sizes.contains(&177) && sizes.len() < 55, "{sizes:?}");
        for pair in sizes.windows(2) {
            let (one, next) = (f64::from(pair[0]), f64::from(pair[1]));
            assert!(next <= (one + 1.0).max(one * 1.15 + 0.5), "{pair:?}");
        }
        assert_eq!(grid(5, 5, 0), [5]);
        assert!(grid(0, u32::MAX, 7).len() < 300);
    }
}
