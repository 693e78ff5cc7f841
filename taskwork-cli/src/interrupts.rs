//! Ctrl-C, and the messages about an outage of ZooKeeper while a command waits.

use std::sync::{Arc, OnceLock};

use indicatif::ProgressBar;
use taskwork::client::Outage;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::{Failure, failure::tell};

/// The messages on standard error while a command runs.
#[derive(Clone, Default)]
pub(crate) struct Notes {
    /// The progress bar that is drawn meanwhile.
    bar: Arc<OnceLock<ProgressBar>>,
}

impl Notes {
    /// Sets the progress bar that is drawn meanwhile; messages are printed above it.
    pub(crate) fn set_bar(&self, bar: Option<&ProgressBar>) {
        if let Some(bar) = bar {
            // There is at most one.
            let _ = self.bar.set(bar.clone());
        }
    }

    /// Prints that ZooKeeper is away, or back.
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

/// Every Ctrl-C, including those that arrive between two waits.
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

/// Awaits a future until Ctrl-C arrives, so that the session can be closed in either case.
pub(crate) async fn interruptible<T>(doing: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let mut interrupts = Interrupts::listen()?;
    tokio::select! {
        done = doing => done,
        () = interrupts.next() => Err(Failure::interrupted()),
    }
}
