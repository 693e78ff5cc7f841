//! Recorded runs: the share that a job reported over its time.

use std::collections::BTreeMap;

use taskwork::view::{Remainder, SHARE_MIN};

use crate::figures::Figures;

/// Returns the recorded runs: the kind of tree, and the shares at equal steps of the time, from 0 to 1.
pub(crate) fn runs() -> Vec<(&'static str, Vec<f64>)> {
    let run = |line: &'static str| {
        let (kind, shares) = line.split_once('\t').expect("a kind and shares");
        let shares = shares.split(' ').map(|share| share.parse::<f64>().expect("a share"));
        (kind, [0.0].into_iter().chain(shares).chain([1.0]).collect())
    };
    include_str!("recorded.tsv").lines().filter(|line| !line.starts_with('#')).map(run).collect()
}

#[test]
fn range_contains_end_of_recorded_runs() {
    let (mut kinds, mut all) = (BTreeMap::<_, Figures>::new(), Figures::default());
    for (kind, shares) in runs() {
        let steps = shares.len() - 1;
        for (step, &share) in shares.iter().enumerate().take(steps).skip(steps / 10) {
            if share < SHARE_MIN {
                continue;
            }
            let (least, most) = Remainder::at_share(share).unwrap().range();
            let left = (steps - step) as f64 / step as f64;
            let is_within = f64::from((least..=most).contains(&left));
            kinds.entry(kind).or_default().add(is_within);
            all.add(is_within);
        }
    }
    for (kind, figures) in &kinds {
        println!("end within the range, {kind}: {:.2} of {}", figures.share_from(1.0), figures.count());
    }
    let share = all.share_from(1.0);
    println!("end within the range: {share:.3} of {}", all.count());
    assert!(kinds.len() >= 10 && (0.7..=0.9).contains(&share), "{share} of {} kinds", kinds.len());
}
