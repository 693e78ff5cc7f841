//! Calls that routines make.
//!
//! A runtime that has made a call waits for its answer, so the call runs on the same node in the slot of its caller: no
//! node waits for another one, and no depth needs more than one worker. It advances when its caller is polled, and ends
//! with its caller.

use std::sync::{
    Arc,
    mpsc::{self, Receiver, TryRecvError},
};

use rustix::event::PollFd;
use serde_json::value::RawValue;

use super::{Installed, threads::spawn_call};
use crate::{
    call::CallHere,
    host::Host,
    library::LATEST_AGE_MAX,
    store::{Outcome, StoreError},
    tenant::Tenant,
    wire::{CallError, ErrorKind, check_value},
};

/// The maximum depth of nested calls; the outermost call has depth 0.
const DEPTH_MAX: u32 = 16;

/// A call that a running routine makes.
#[derive(Debug)]
pub(super) enum NestedCall {
    /// Another thread looks for the package in the store, which may take long.
    Looking {
        found: Receiver<Result<Arc<Installed>, StoreError>>,
        host: &'static Host,
        argument: Box<RawValue>,
        depth: u32,
        tenant: Tenant,
    },
    Runs(Box<CallHere<'static>>),
    Failed(CallError),
}

impl NestedCall {
    /// Starts a call of `NAME@VERSION`, `NAME` or a digest, for the tenant of its caller.
    pub(super) fn start(routine: String, argument: Box<RawValue>, depth: u32, tenant: Tenant) -> Self {
        let refuse = |reason| Self::Failed(CallError::new(ErrorKind::Invalid, reason));
        if depth > DEPTH_MAX {
            return refuse(format!("calls are nested more than {DEPTH_MAX} deep: {routine} is not called"));
        }
        // A runtime may have another program than a shim.
        if let Err(error) = check_value(argument.get()) {
            return refuse(format!("the argument of {routine} is no value: {error}"));
        }
        let Some(host) = Host::current() else {
            return refuse("this process is not a node of routines".to_owned());
        };
        if let Some(installed) = host.packages.known(&routine) {
            return Self::run(host, installed, argument, depth, tenant);
        }
        let (send, found) = mpsc::channel();
        let look = move || drop(send.send(host.packages.named(&host.store, &routine, LATEST_AGE_MAX)));
        match spawn_call(look) {
            Ok(()) => Self::Looking { found, host, argument, depth, tenant },
            Err(error) => {
                let reason = format!("the call cannot be started: {error}");
                Self::Failed(CallError::new(ErrorKind::Crash, reason))
            }
        }
    }

    fn run(
        host: &'static Host,
        installed: Arc<Installed>,
        argument: Box<RawValue>,
        depth: u32,
        tenant: Tenant,
    ) -> Self {
        let parameters = installed.package.description.parameters.as_ref();
        if let Err(reason) = parameters.map_or(Ok(()), |of| of.check(argument.get())) {
            let reason = format!("the argument of {}, {reason}", installed.package.name());
            return Self::Failed(CallError::new(ErrorKind::Invalid, reason));
        }
        Self::Runs(Box::new(CallHere::new(host, installed, argument, depth, None, tenant)))
    }

    /// Continues the call without waiting. Returns its outcome when it has ended.
    pub(super) fn advance(&mut self) -> Option<Outcome> {
        if let Self::Looking { found, host, argument, depth, tenant } = self {
            *self = match found.try_recv() {
                Ok(Ok(installed)) => Self::run(host, installed, argument.clone(), *depth, tenant.clone()),
                Ok(Err(error)) => Self::Failed(CallError::new(ErrorKind::Invalid, error.to_string())),
                Err(TryRecvError::Empty) => return None,
                Err(TryRecvError::Disconnected) => {
                    let reason = "the search for the package has panicked".to_owned();
                    Self::Failed(CallError::new(ErrorKind::Crash, reason))
                }
            };
        }
        match self {
            Self::Looking { .. } => None,
            Self::Runs(call) => call.advance(),
            Self::Failed(error) => Some(Outcome::Error(error.clone())),
        }
    }

    /// Adds everything on which the call waits. Returns whether it waits for nothing else.
    pub(super) fn watch<'a>(&'a self, ready: &mut Vec<PollFd<'a>>) -> bool {
        match self {
            Self::Looking { .. } => false,
            Self::Runs(call) => call.runtime().is_some_and(|runtime| runtime.watch(ready)),
            Self::Failed(_) => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn argument_that_is_no_value_is_refused() {
        crate::testing::fixture();
        for (argument, says) in [
            ("[9007199254740993]".to_owned(), "2^53"),
            (format!("{}{}", "[".repeat(101), "]".repeat(101)), "100 deep"),
        ] {
            let argument = RawValue::from_string(argument).unwrap();
            let call = NestedCall::start("missing@1".to_owned(), argument, 1, Tenant::default());
            let NestedCall::Failed(error) = call else { panic!("{call:?}") };
            assert!(error.kind == ErrorKind::Invalid && error.message.contains(says), "{error:?}");
        }
    }
}
