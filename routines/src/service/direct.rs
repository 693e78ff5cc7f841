//! Direct calls: their arguments and outcomes, and the files of large ones.

use std::{
    collections::HashMap,
    convert::Infallible,
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::time::sleep;

use super::{
    Service, ServiceError,
    arguments::{checked, wrong_kind},
    blocking,
};
use crate::{
    mesh::{self, Ended, Spec},
    package::Package,
    resource::has_references,
    runtime::Installed,
    store::{Body, Outcome, Store, StoreError},
    usage::Usage,
    wire::{CallError, EntryKind, ErrorKind},
};

/// The maximum duration of a direct call, in addition to the time limit of its routine.
const CALL_MAX: Duration = Duration::from_secs(60);

impl Service {
    /// Makes a call on a node, and returns its outcome as JSON. Dropping the future cancels it.
    pub(crate) async fn call(
        &self,
        installed: &Arc<Installed>,
        argument: String,
    ) -> Result<String, ServiceError> {
        let _turn = self.turn().await?;
        let (start, in_bytes) = (Instant::now(), argument.len() as u64);
        let outcome = self.call_on_node(installed, argument).await?;
        let usage = Usage {
            calls: 1,
            failed: u64::from(outcome.starts_with("{\"error\"")),
            wall_us: u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX),
            in_bytes,
            out_bytes: outcome.len() as u64,
            ..Usage::default()
        };
        self.usage.add_direct(&self.store.tenant, installed.package.name(), &usage);
        Ok(outcome)
    }

    async fn call_on_node(
        &self,
        installed: &Arc<Installed>,
        argument: String,
    ) -> Result<String, ServiceError> {
        let Package { digest, description, .. } = &installed.package;
        if description.kind == EntryKind::Search {
            return Err(wrong_kind(&installed.package));
        }
        let argument = checked(installed, argument, |parameters, argument| {
            parameters.check(argument).map_err(|reason| format!("argument 0, {reason}"))
        })
        .await?;
        let argument = if has_references(&argument) {
            self.with_store(|store| store.refer(argument, &mut HashMap::new())).await?
        } else {
            argument
        };
        let limit = description.timeout().unwrap_or_default() + CALL_MAX;
        let argument = if Body::is_large(&argument) {
            let store = self.store.clone();
            blocking(move || Argument::new(store, &argument, limit)).await??
        } else {
            Argument::new(self.store.clone(), &argument, limit)?
        };
        let limit_ms = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX).max(1);
        let (digest, tenant) = (digest.clone(), self.store.tenant.clone());
        let spec = Spec { digest, argument: argument.body.clone(), limit_ms, tenant };
        match mesh::call(spec, description.idempotent).await {
            Ended::Answered(Body::Inline(outcome)) => Ok(outcome),
            Ended::Answered(stored) => {
                let store = self.store.clone();
                let read = move || {
                    let content = store.content(&stored);
                    store.remove(&stored);
                    content
                };
                blocking(read).await?.map_err(not_stored)
            }
            Ended::Busy => Err(ServiceError::Busy),
            Ended::NoNode => Err(ServiceError::NoNode),
            Ended::Unknown => {
                let reason = "the node was lost with the call, which may have run, in part or as a whole; declare the \
                              routine idempotent to have such calls repeated";
                let outcome = Outcome::Error(CallError::new(ErrorKind::OutcomeUnknown, reason));
                serde_json::to_string(&outcome).map_err(|error| ServiceError::Invalid(error.to_string()))
            }
        }
    }

    /// Removes the files of lost calls, at once and then at this interval.
    pub(crate) async fn sweep(&self, every: Duration) -> Infallible {
        loop {
            let store = self.store.clone();
            if let Ok(Err(error)) = blocking(move || store.remove_old_bodies()).await {
                tracing::warn!(%error, "the files of lost calls cannot be removed");
            }
            sleep(every).await;
        }
    }
}

/// The argument of a direct call, until the call has ended.
struct Argument {
    store: Store,
    body: Body,
}

impl Argument {
    fn new(store: Store, argument: &str, limit: Duration) -> Result<Self, ServiceError> {
        let body = store.body_for(argument, limit).map_err(not_stored)?;
        Ok(Self { store, body })
    }
}

impl Drop for Argument {
    fn drop(&mut self) {
        self.store.remove(&self.body);
    }
}

fn not_stored(error: io::Error) -> ServiceError {
    StoreError::Io { name: "a large argument or result".to_owned(), error }.into()
}
