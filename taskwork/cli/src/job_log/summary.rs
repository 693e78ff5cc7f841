//! The times of the workers by activity, at the end of the log.

use std::fmt::Write as _;

use taskwork::report::WorkerTimes;

/// The number of tenths of a per cent in the whole.
const WHOLE: u64 = 1_000;

/// Returns the lines, or none if nothing was measured. The shares add up to 100 %.
pub(super) fn text(times: WorkerTimes) -> String {
    let parts = [
        ("searching", times.searching_ns),
        ("looking for work", times.looking_ns),
        ("starting", times.starting_ns),
        ("ending and writing tasks", times.handling_ns),
    ];
    let total_ns = times.total_ns();
    if total_ns == 0 {
        return String::new();
    }
    let mut text = format!("# {:<26}{:>12} s   100.0 %\n", "time of the workers", seconds(total_ns));
    for ((name, ns), tenths) in parts.into_iter().zip(shares(parts.map(|(_, ns)| ns))) {
        // Writing into a string cannot fail.
        let _ = writeln!(text, "#   {name:<24}{:>12} s{:>6}.{} %", seconds(ns), tenths / 10, tenths % 10);
    }
    text
}

fn seconds(ns: u64) -> String {
    format!("{:.2}", ns as f64 * 1e-9)
}

/// Returns the share of each part in tenths of a per cent. They are rounded so that they add up to [`WHOLE`]: those
/// with the largest remainders are rounded up.
fn shares<const N: usize>(parts: [u64; N]) -> [u64; N] {
    let total: u128 = parts.iter().copied().map(u128::from).sum();
    if total == 0 {
        return [0; N];
    }
    let exact = parts.map(|part| u128::from(part) * u128::from(WHOLE));
    let mut shares = exact.map(|part| u64::try_from(part / total).unwrap_or(WHOLE));
    let mut order: Vec<usize> = (0..N).collect();
    order.sort_by_key(|&part| std::cmp::Reverse(exact[part] % total));
    let missing = WHOLE.saturating_sub(shares.iter().sum());
    for &part in order.iter().cycle().take(usize::try_from(missing).unwrap_or(0)) {
        shares[part] += 1;
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up_to_the_whole() {
        assert_eq!(shares([1, 1, 1]), [334, 333, 333]);
        assert_eq!(shares([0, 0]), [0, 0]);
        for seed in 1..200_u64 {
            let parts = [seed, seed.pow(3), seed * 17 % 101, u64::MAX / 4 / seed];
            assert_eq!(shares(parts).iter().sum::<u64>(), WHOLE, "{parts:?}");
        }
    }

    #[test]
    fn each_activity_has_time_and_share() {
        let mut times = WorkerTimes::default();
        assert_eq!(text(times), "", "nothing was measured");
        (times.searching_ns, times.looking_ns) = (9_000_000_000, 900_000_000);
        (times.starting_ns, times.handling_ns) = (90_000_000, 10_000_000);
        assert_eq!(
            text(times),
            "# time of the workers              10.00 s   100.0 %\n\
             #   searching                       9.00 s    90.0 %\n\
             #   looking for work                0.90 s     9.0 %\n\
             #   starting                        0.09 s     0.9 %\n\
             #   ending and writing tasks        0.01 s     0.1 %\n"
        );
    }
}
