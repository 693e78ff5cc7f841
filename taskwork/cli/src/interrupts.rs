//! The signals that request the exit of a process, and the messages about an outage of ZooKeeper while a command
//! waits.

use std::{
    fs,
    future::poll_fn,
    sync::{Arc, OnceLock},
    task::Poll,
};

use indicatif::ProgressBar;
use taskwork::client::Outage;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::{Failure, failure::tell};

/// The messages on standard error while a command runs.
#[derive(Debug, Clone, Default)]
pub struct Notes {
    /// The progress bar, if one is drawn.
    bar: Arc<OnceLock<ProgressBar>>,
}

impl Notes {
    /// Sets the progress bar; messages are printed above it.
    pub(crate) fn set_bar(&self, bar: Option<&ProgressBar>) {
        if let Some(bar) = bar {
            // There is at most one.
            let _ = self.bar.set(bar.clone());
        }
    }

    /// Prints that ZooKeeper does not answer, or answers again.
    pub(crate) fn outage(&self, outage: Outage) {
        match outage {
            Outage::Lasts { since, lasted } => {
                let since = humantime::format_rfc3339_seconds(since);
                let seconds = lasted.as_secs();
                self.say(&format!(
                    "note: ZooKeeper has not answered since {since}, for {seconds} s; it is tried again"
                ));
            }
            Outage::Over { lasted } => {
                self.say(&format!("note: ZooKeeper answers again, after {} s", lasted.as_secs()));
            }
            _ => {}
        }
    }

    fn say(&self, text: &str) {
        match self.bar.get() {
            Some(bar) => bar.suspend(|| tell(format_args!("{text}"))),
            None => tell(format_args!("{text}")),
        }
    }
}

/// Receives every Ctrl-C, including those that arrive between two waits.
pub(crate) struct Interrupts(Signal);

impl Interrupts {
    pub(crate) fn listen() -> Result<Self, Failure> {
        let refused = |error| Failure::failed(format!("Ctrl-C cannot be listened for: {error}"));
        signal(SignalKind::interrupt()).map(Self).map_err(refused)
    }

    pub(crate) async fn next(&mut self) {
        if self.0.recv().await.is_none() {
            std::future::pending::<()>().await;
        }
    }
}

/// The number of SIGXCPU, which the kernel sends when the limit of processor time is reached, and then every second.
const PROCESSOR_TIME: i32 = 24;

/// The signals that request an orderly exit: Ctrl-C, SIGTERM, SIGHUP (the terminal or the connection was closed), and
/// those by which batch systems announce the end of a job: SIGUSR1, SIGUSR2 and SIGXCPU. SIGQUIT is not one of them: it
/// terminates a process at once.
#[derive(Debug)]
pub struct Endings(Vec<(SignalKind, Signal)>);

impl Endings {
    /// Listens for the signals, except for those that the process was started to ignore (`nohup`).
    ///
    /// # Errors
    /// If the signals cannot be listened for.
    pub fn listen() -> Result<Self, Failure> {
        let always = [SignalKind::interrupt(), SignalKind::terminate()];
        let others = [
            SignalKind::hangup(),
            SignalKind::user_defined1(),
            SignalKind::user_defined2(),
            SignalKind::from_raw(PROCESSOR_TIME),
        ];
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let others = others.into_iter().filter(|kind| !is_ignored(&status, kind.as_raw_value()));
        let refused = |error| Failure::failed(format!("signals cannot be listened for: {error}"));
        let listened =
            always.into_iter().chain(others).map(|kind| Ok((kind, signal(kind).map_err(refused)?)));
        listened.collect::<Result<_, _>>().map(Self)
    }

    /// Waits for the next signal. SIGXCPU is reported once, since the kernel repeats it.
    pub async fn next(&mut self) {
        let arrived = poll_fn(|cx| {
            let arrived = self.0.iter_mut().position(|(_, signal)| signal.poll_recv(cx).is_ready());
            arrived.map_or(Poll::Pending, Poll::Ready)
        });
        let arrived = arrived.await;
        if self.0[arrived].0.as_raw_value() == PROCESSOR_TIME {
            drop(self.0.remove(arrived));
        }
    }
}

/// Waits for SIGTERM or SIGHUP, and returns its number. SIGHUP is not awaited if the process was started to ignore it
/// (`nohup`).
///
/// # Errors
/// If the signals cannot be listened for.
pub(crate) async fn terminated() -> Result<u8, Failure> {
    let refused = |error| Failure::failed(format!("signals cannot be listened for: {error}"));
    let mut terminate = signal(SignalKind::terminate()).map_err(refused)?;
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    if is_ignored(&status, SignalKind::hangup().as_raw_value()) {
        terminate.recv().await;
        return Ok(15);
    }
    let mut hangup = signal(SignalKind::hangup()).map_err(refused)?;
    tokio::select! {
        _ = terminate.recv() => Ok(15),
        _ = hangup.recv() => Ok(1),
    }
}

/// Returns whether a signal is ignored, from a text as in `/proc/self/status`.
fn is_ignored(status: &str, signal: i32) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask >> (signal - 1) & 1 == 1
}

/// Awaits a future until Ctrl-C arrives, so that the session can be closed in either case.
///
/// # Errors
/// That of the future, or [`Failure::interrupted`].
pub async fn interruptible<T>(doing: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let mut interrupts = Interrupts::listen()?;
    tokio::select! {
        done = doing => done,
        () = interrupts.next() => Err(Failure::interrupted()),
    }
}

#[cfg(test)]
mod tests {
    use super::is_ignored;

    #[test]
    fn ignored_signals_are_read_from_the_status_of_the_process() {
        let status = "Name:\ttsp\nSigBlk:\tffffffffffffffff\nSigIgn:\t0000000000001001\nSigCgt:\tfff\n";
        assert_eq!(
            [1, 2, 10, 12, 13, 64].map(|signal| is_ignored(status, signal)),
            [true, false, false, false, true, false]
        );
        assert!(!is_ignored("", 1) && !is_ignored("SigIgn:\tmany\n", 1));
    }
}
