//! The office of the controller that decides how many machines a cluster has, of which there is one at a time.

use std::fmt;

use zk::scaling::{self, Standing};

use super::{Client, ClientError};

pub use zk::scaling::{SCALING_BYTES_MAX, Said};

/// The right of one controller to decide how many machines a cluster has.
///
/// What the controller is about to do is [written](Self::write) first. Whoever holds the office next goes on from
/// there.
pub struct ScalingOffice {
    office: scaling::Office,
}

/// Why something was not written by a controller. It has to [take the office](Client::take_scaling_office) again,
/// and go on from what stands there, unless it is too large.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotWritten {
    /// It is larger than [`SCALING_BYTES_MAX`].
    #[error("what the controller remembers is too large: {0}")]
    TooLarge(String),
    /// The office is lost, or ZooKeeper does not answer.
    #[error("{0}")]
    Lost(String),
}

impl Client {
    /// Takes the office of the controller, and returns what the last one has remembered, if there was one. Waits
    /// for as long as another controller holds it, and calls `wait` with its name when that begins. The name
    /// differs from that of every other controller, and is the same when this one takes the office again.
    ///
    /// # Errors
    /// If ZooKeeper refuses something, or was unavailable for longer than the client's patience.
    pub async fn take_scaling_office(
        &self,
        name: &str,
        mut wait: impl FnMut(&str),
    ) -> Result<(ScalingOffice, Option<Vec<u8>>), ClientError> {
        let mut told = None;
        loop {
            let standing =
                self.ask(|store| async move { scaling::stand(store, self.cluster(), name).await }).await?;
            match standing {
                Standing::Taken(office, state) => return Ok((ScalingOffice { office }, state)),
                Standing::HeldBy { holder, changed } => {
                    if told.as_ref() != Some(&holder) {
                        wait(&holder);
                        told = Some(holder);
                    }
                    // Whatever it was, it is looked at again.
                    self.attended(async { Ok::<_, ClientError>(changed.await) }).await?;
                }
            }
        }
    }

    /// Returns what the controller has said last, and what it remembers; `None` if there never was one.
    ///
    /// # Errors
    /// If ZooKeeper was unavailable for too long.
    pub async fn scaling_said(&self) -> Result<Option<Said>, ClientError> {
        self.ask(|store| async move { scaling::said(&*store, self.cluster()).await }).await
    }
}

impl ScalingOffice {
    /// Writes what the controller remembers, and what it says to people.
    ///
    /// # Errors
    /// See [`NotWritten`].
    pub async fn write(&mut self, state: &[u8], said: &[u8]) -> Result<(), NotWritten> {
        self.office.write(state, said).await.map_err(|error| match error {
            zk::Error::TooLarge { .. } => NotWritten::TooLarge(error.to_string()),
            error => NotWritten::Lost(error.to_string()),
        })
    }

    /// Gives the office up, so that another controller need not wait for the end of the session.
    pub async fn give_up(self) {
        if let Err(error) = self.office.give_up().await {
            tracing::debug!(%error, "the office ends with the session");
        }
    }
}

impl fmt::Debug for ScalingOffice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScalingOffice").finish_non_exhaustive()
    }
}
