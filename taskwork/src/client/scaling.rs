//! The lock of the autoscaling controller, which decides how many machines a cluster has. One controller holds it at
//! a time.

use std::fmt;

use zk::scaling::{self, Standing};

use super::{Client, ClientError};

pub use zk::scaling::{SCALING_BYTES_MAX, Said};

/// The right of one controller to decide how many machines a cluster has.
///
/// The controller [writes](Self::write) each action before it performs it, so that the next holder continues from
/// there.
pub struct ScalingOffice {
    office: scaling::Office,
}

/// The reasons for which a controller could not write. It must [acquire the office](Client::take_scaling_office) again,
/// and continue from the state written there, unless the state is too large.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotWritten {
    /// It is larger than [`SCALING_BYTES_MAX`].
    #[error("the state of the controller is too large: {0}")]
    TooLarge(String),
    /// The office is lost, or ZooKeeper does not answer.
    #[error("{0}")]
    Lost(String),
}

impl Client {
    /// Acquires the office of the controller, and returns the state that the previous holder wrote, if there was one.
    /// Waits as long as another controller holds it; `wait` is called with its name when the wait starts. The name
    /// must differ from that of every other controller, and remain the same when this one acquires the office again.
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
                    // Any event: the office is read again.
                    self.attended(async { Ok::<_, ClientError>(changed.await) }).await?;
                }
            }
        }
    }

    /// Returns the last report and state of the controller; `None` if there never was one.
    ///
    /// # Errors
    /// If ZooKeeper was unavailable for too long.
    pub async fn scaling_said(&self) -> Result<Option<Said>, ClientError> {
        self.ask(|store| async move { scaling::said(&*store, self.cluster()).await }).await
    }
}

impl ScalingOffice {
    /// Writes the controller's state, and its report for display.
    ///
    /// # Errors
    /// See [`NotWritten`].
    pub async fn write(&mut self, state: &[u8], said: &[u8]) -> Result<(), NotWritten> {
        self.office.write(state, said).await.map_err(|error| match error {
            zk::Error::TooLarge { .. } => NotWritten::TooLarge(error.to_string()),
            error => NotWritten::Lost(error.to_string()),
        })
    }

    /// Releases the office, so that another controller need not wait until the session has expired.
    pub async fn give_up(self) {
        if let Err(error) = self.office.give_up().await {
            tracing::debug!(%error, "the office is released when the session expires");
        }
    }
}

impl fmt::Debug for ScalingOffice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScalingOffice").finish_non_exhaustive()
    }
}
