//! Preemption notices: announcements that the machine of a node will be taken away, and the time left.
//!
//! ```text
//!   metadata of a cloud ─▶ answer.rs: parse the answer ─▶ policy.rs: the time left ─▶ the node leaves
//!   a file              ─▶           (pure)                         (pure)
//!   a planned end       ───────────────────────────────▶ the time at which the node must start to leave
//! ```
//!
//! A source that fails does not affect the node. Without a notice, a signal still makes the node leave, and without a
//! signal it is lost, which costs about a second of its work.

#[cfg_attr(
    not(feature = "cloud"),
    allow(dead_code, reason = "answers of clouds are read for the fuzzer alone")
)]
mod answer;
#[cfg(feature = "cloud")]
mod cloud;
mod file;
#[cfg(feature = "http")]
#[cfg_attr(not(feature = "cloud"), allow(dead_code, reason = "a node is asked less than a cloud"))]
pub(crate) mod metadata;
#[cfg_attr(not(feature = "cloud"), allow(dead_code, reason = "only clouds have clocks of their own"))]
mod policy;
mod source;
#[cfg(test)]
#[cfg(feature = "cloud")]
mod fake;
#[cfg(test)]
#[cfg(feature = "cloud")]
mod tests;

use std::{path::PathBuf, time::Duration};

use tokio::{task::JoinSet, time::Instant};

pub(crate) use self::policy::deadline;
use self::policy::{Clock, Ends};
#[cfg(feature = "cloud")]
use self::{cloud::Cloud, metadata::Service};
pub use self::{
    policy::lead,
    source::{Source, source},
};
use crate::Failure;

/// A notice of a source. Each source has at most one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// The reason.
    pub why: String,
    /// The time at which the machine is gone.
    pub gone_at: Instant,
}

/// The sources of a node's notices, each watched by a task.
#[derive(Debug, Default)]
pub struct Notices {
    watching: JoinSet<Notice>,
}

impl Notices {
    /// Starts to watch sources. `lead` is the time that a node needs to leave before a planned end.
    ///
    /// # Errors
    /// If a source is not available, such as Slurm outside of a Slurm job.
    pub fn watch(sources: &[Source], lead: Duration) -> Result<Self, Failure> {
        let mut notices = Self::default();
        for source in sources {
            match source {
                Source::None => {}
                #[cfg(feature = "cloud")]
                Source::Aws => notices.cloud(Cloud::aws())?,
                #[cfg(feature = "cloud")]
                Source::Gcp => notices.cloud(Cloud::gcp())?,
                #[cfg(feature = "cloud")]
                Source::Azure => notices.cloud(Cloud::azure())?,
                #[cfg(not(feature = "cloud"))]
                Source::Aws | Source::Gcp | Source::Azure => {
                    return Err(Failure::usage(
                        "--notice: this program was built without requests to clouds: build it with --features cloud",
                    ));
                }
                Source::File(path) => notices.file(path.clone()),
                Source::Slurm => notices.slurm(lead)?,
            }
        }
        Ok(notices)
    }

    /// Also watches for the end of the node's maximum lifetime.
    pub fn end_after(&mut self, lifetime: Duration, lead: Duration) {
        let why = format!("it has lived for its {}", humantime::format_duration(lifetime));
        self.planned(why, lifetime, lead);
    }

    #[cfg(feature = "cloud")]
    fn cloud(&mut self, cloud: Cloud) -> Result<(), Failure> {
        let service = Service::of(cloud.host().map_err(Failure::usage)?);
        self.watching.spawn(cloud.watch(service));
        Ok(())
    }

    fn file(&mut self, path: PathBuf) {
        self.watching.spawn(file::watch(path, file::EVERY));
    }

    fn slurm(&mut self, lead: Duration) -> Result<(), Failure> {
        let end = std::env::var(answer::SLURM_END).map_err(|_| {
            Failure::usage(format!(
                "--notice slurm: {} is not set: is this a job of Slurm, of version 22.05 or later?",
                answer::SLURM_END
            ))
        })?;
        match answer::slurm(&end).map(|at| Clock::ours().planned(at)) {
            Ok(Ends::In(left)) => self.planned("its time at Slurm is over".to_owned(), left, lead),
            Ok(Ends::Never) => tracing::info!("the job of Slurm has no end; its signals are heeded"),
            Ok(Ends::Unclear) => tracing::warn!(
                end,
                "by the clock of this machine the job of Slurm is over; its end is not heeded, only its signals"
            ),
            Err(error) => {
                tracing::warn!(%error, end, "the end of the job of Slurm is not heeded, only its signals");
            }
        }
        Ok(())
    }

    fn planned(&mut self, why: String, left: Duration, lead: Duration) {
        let now = Instant::now();
        let gone_at = now + left;
        self.watching.spawn(async move {
            tokio::time::sleep_until(now + policy::begins_in(left, lead)).await;
            Notice { why, gone_at }
        });
    }

    /// Waits for the next notice; without further sources, forever.
    ///
    /// # Cancellation safety
    /// Dropping the future loses no notice.
    pub async fn next(&mut self) -> Notice {
        loop {
            match self.watching.join_next().await {
                Some(Ok(notice)) => return notice,
                Some(Err(error)) => tracing::error!(%error, "a source of notices is no longer watched"),
                None => std::future::pending().await,
            }
        }
    }
}

/// Parses a text in all formats of sources, for the fuzzer: it must not panic.
pub(crate) fn check(text: &str) {
    let _ = text.parse::<Source>();
    answer::check(text);
}
