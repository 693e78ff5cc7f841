//! The cases of calls that continue from their states.

use serde_json::{json, value::RawValue};

use super::{
    Suite,
    cases::expect,
    peer::{Checked, Peer, Reason, check_error},
};
use crate::{
    runtime::Request,
    wire::{ErrorKind, Step},
};

/// A call that waits for its stop at the number 500.
const WAITS: &str = "[1000,500]";

/// The maximum number of messages until a frame of calls has stopped.
const STEPS_MAX: u32 = 1_000;

/// Starts calls, of which a single one may continue from a state.
fn send(peer: &mut Peer, arguments: &[&str], state: Option<&[u8]>) -> Checked {
    let calls =
        (0..).zip(arguments).map(|(id, argument)| Ok((id, RawValue::from_string((*argument).to_owned())?)));
    let calls = calls.collect::<Result<Vec<_>, serde_json::Error>>()?;
    peer.runtime.call(&calls, state, 0).map_err(Reason::from)
}

/// Waits for a state, repeating a request, and returns it with the id of its call.
fn checkpoint(peer: &mut Peer, request: Option<Request>) -> Result<(u64, Vec<u8>), Reason> {
    match peer.next_asked(request)? {
        Step::Checkpoint { id, state } if !state.is_empty() => Ok((id, state)),
        other => Err(format!("expected the state of a call, not {other:?}").into()),
    }
}

/// Starts a call, and stops it when it has sent a requested state. Returns its last state.
fn stop(peer: &mut Peer) -> Result<Vec<u8>, Reason> {
    send(peer, &[WAITS], None)?;
    checkpoint(peer, None)?;
    let (_, last) = checkpoint(peer, Some(Request::Pause))?;
    match peer.next()? {
        Step::Stopped(calls) => expect(&calls, &(0..1).into()).map(|()| last),
        other => Err(format!("expected the stop, not {other:?}").into()),
    }
}

pub(super) fn first(suite: &Suite) -> Checked {
    let mut peer = Peer::loaded(suite, "adds")?;
    send(&mut peer, &["[10]"], None)?;
    expect(&checkpoint(&mut peer, None)?.0, &0)?;
    expect(&peer.answers(1)?.remove(0).1.ok(), &Some(json!([45, 0])))
}

pub(super) fn requested(suite: &Suite) -> Checked {
    let mut peer = Peer::loaded(suite, "adds")?;
    send(&mut peer, &[WAITS], None)?;
    (0..4)
        .try_for_each(|number| expect(&checkpoint(&mut peer, (number > 0).then_some(Request::State))?.0, &0))
}

pub(super) fn stops(suite: &Suite) -> Checked {
    let mut peer = Peer::loaded(suite, "adds")?;
    stop(&mut peer)?;
    expect(&peer.call("[10]")?.ok(), &Some(json!([45, 0])))
}

pub(super) fn stops_frame(suite: &Suite) -> Checked {
    let mut peer = Peer::loaded(suite, "adds")?;
    send(&mut peer, &["[10]", WAITS, "[10]"], None)?;
    let mut answered = Vec::new();
    // The second call runs as soon as a state is its own.
    let mut request = Request::State;
    for _ in 0..STEPS_MAX {
        match peer.next_asked(Some(request))? {
            Step::Checkpoint { id: 1, .. } => request = Request::Pause,
            Step::Checkpoint { id: 0, .. } => {}
            Step::Answered(answers) => answered.extend(answers.into_iter().map(|(id, _)| id)),
            Step::Stopped(calls) => return expect(&(answered, calls), &(vec![0], (1..3).into())),
            other => return Err(format!("expected a state or the stop, not {other:?}").into()),
        }
    }
    Err(format!("it does not stop within {STEPS_MAX} states").into())
}

pub(super) fn elsewhere(suite: &Suite) -> Checked {
    let state = stop(&mut Peer::loaded(suite, "adds")?)?;
    let mut other = Peer::loaded(suite, "adds")?;
    send(&mut other, &[WAITS], Some(&state))?;
    checkpoint(&mut other, None)?;
    expect(&other.answers(1)?.remove(0).1.ok(), &Some(json!([499_500, 1])))
}

pub(super) fn too_large(suite: &Suite) -> Checked {
    let mut peer = Peer::loaded(suite, "adds")?;
    check_error(peer.call(&format!("[10,-1,{}]", 1 << 20))?, ErrorKind::Invalid, "")
}
