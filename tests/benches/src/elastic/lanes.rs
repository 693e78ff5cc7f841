//! Work that is shared by several threads, each with its own cluster.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    thread,
};

use anyhow::{Context as _, Error, Result};

/// Does all of the work in this many threads, each of which creates a context for it. Returns the results in
/// the order of the work.
///
/// # Errors
/// The first error. Work in progress is finished first.
pub(super) fn run<W: Sync, S, R: Send>(
    lanes: usize,
    work: &[W],
    start: impl Fn() -> Result<S> + Sync,
    each: impl Fn(&mut S, &W) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    let next = AtomicUsize::new(0);
    let results: Mutex<Vec<Option<R>>> = Mutex::new(work.iter().map(|_| None).collect());
    let failed: Mutex<Option<Error>> = Mutex::new(None);
    let lane = || -> Result<()> {
        let mut with = start()?;
        loop {
            let place = next.fetch_add(1, Relaxed);
            let Some(given) = work.get(place) else { return Ok(()) };
            let result = each(&mut with, given)?;
            results.lock().unwrap_or_else(PoisonError::into_inner)[place] = Some(result);
        }
    };
    thread::scope(|scope| {
        for _ in 0..lanes.min(work.len()) {
            scope.spawn(|| {
                if let Err(error) = lane() {
                    next.store(work.len(), Relaxed);
                    failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                }
            });
        }
    });
    if let Some(error) = failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(error);
    }
    let results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.into_iter().collect::<Option<_>>().context("a part of the work was not done")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_keep_the_order_of_the_work() {
        let work: Vec<u32> = (0..100).collect();
        let doubled = run(3, &work, || Ok(2), |factor, number| Ok(*factor * number)).unwrap();
        assert_eq!(doubled, (0..100).map(|number| 2 * number).collect::<Vec<_>>());
    }

    #[test]
    fn error_stops_all_lanes() {
        let failed = run(
            2,
            &[1, 2, 3],
            || Ok(()),
            |(), &number| {
                anyhow::ensure!(number != 2, "two");
                Ok(number)
            },
        );
        assert_eq!(failed.unwrap_err().to_string(), "two");
    }
}
