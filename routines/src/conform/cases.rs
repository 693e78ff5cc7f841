//! The cases.

use std::{
    collections::{BTreeMap, BTreeSet},
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json, value::RawValue};

use super::{
    Suite, checkpoints,
    peer::{Checked, Peer, Reason, STEP_MAX, check_error},
};
use crate::{
    runtime::Request,
    wire::{EntryKind, ErrorKind, Frame, NewCounts, Step},
};

/// A check of one case.
pub(super) enum Check {
    /// The routine returns this value for this argument.
    Returns(&'static str, &'static str, &'static str),
    /// `echo` returns its argument.
    Echoes(&'static str),
    /// The routine fails for this argument, and the error contains this text.
    Fails(&'static str, &'static str, ErrorKind, &'static str),
    /// The entry cannot be loaded.
    NotLoaded(&'static str, EntryKind),
    /// The runtime exits when it gets this message.
    Refuses(&'static str),
    Runs(fn(&Suite) -> Checked),
}

use Check::{Echoes, Fails, NotLoaded, Refuses, Returns, Runs};

/// The names of the cases, and the checks.
pub(super) const CASES: &[(&str, Check)] = &[
    ("hello: the common version is chosen", Runs(hello_common)),
    ("hello: unknown versions are refused", Runs(hello_unknown)),
    ("hello and load: unknown fields are ignored", Runs(hello_fields)),
    ("load: a missing module is an error", NotLoaded("missing_module:run", EntryKind::Function)),
    ("load: a missing function is an error", NotLoaded("conform:missing", EntryKind::Function)),
    ("load: a function is no search", NotLoaded("conform:echo", EntryKind::Search)),
    ("message: an unknown one is refused", Refuses(r#"{"type":"reboot"}"#)),
    ("message: one that is no JSON is refused", Refuses("reboot")),
    ("value: null and booleans", Echoes("[null,true,false]")),
    ("value: integers to 2^53", Echoes("[0,-1,9007199254740992,-9007199254740992]")),
    ("value: integers beyond 2^53", Echoes(r#"[{"$i":"9007199254740993"},{"$i":"-18446744073709551616"}]"#)),
    ("value: doubles", Echoes("[1.5,-0.1,1.7976931348623157e308,5e-324]")),
    ("value: NaN and infinities", Echoes(r#"[{"$f":"nan"},{"$f":"inf"},{"$f":"-inf"}]"#)),
    ("value: strings", Echoes(r#"["","ä€😀","\"\\\n\t\u0000\u001f"]"#)),
    ("value: empty list and object", Echoes("[[],{}]")),
    ("value: nested lists and objects", Echoes(r#"{"a":[1,{"b":[[],[2.5,"c"]]}],"d":{"e":null}}"#)),
    ("value: arrays", Echoes(ARRAYS)),
    ("value: elements of an array", Returns("doubled", DOUBLES, DOUBLED)),
    ("value: an array with a wrong shape is an error", Runs(value_wrong_shapes)),
    ("value: 100 levels", Runs(value_deep)),
    ("call: positional arguments", Returns("pair", "[1,3]", "[1,3]")),
    ("call: named arguments", Returns("pair", r#"{"second":3,"first":1}"#, "[1,3]")),
    ("call: the only argument", Returns("pair", "1", "[1,2]")),
    ("call: wrong arguments are an error", Fails("pair", "[1,2,3]", ErrorKind::User, "")),
    ("call: unknown fields are ignored", Runs(call_fields)),
    ("call: bytes of the frame are ignored", Runs(|suite| calls_seven(suite, CALL, b"bytes"))),
    ("call: many in a frame", Runs(call_many)),
    ("call: an error among many", Runs(call_error_among_many)),
    ("call: a second frame follows an error", Runs(call_after_error)),
    ("error: an exception has a message", Fails("fails", "[-5]", ErrorKind::User, "number -5")),
    ("error: the trace names the function", Fails("fails", "[-5]", ErrorKind::User, "fails")),
    ("error: a result that is no value", Fails("invalid", "[1]", ErrorKind::Invalid, "")),
    ("frame: 16 MiB", Runs(frame_large)),
    ("frame: a result beyond 64 MiB is invalid", Runs(frame_result_too_large)),
    ("frame: one beyond 64 MiB is refused", Runs(frame_too_large)),
    ("frame: in pieces", Runs(frame_in_pieces)),
    ("frame: a cut one is no call", Runs(frame_cut)),
    ("log: output is no frame, and 1 MiB does not block", Runs(log_output)),
    ("nested: a result", Returns("calls", r#"["conform@1",[1,{"$f":"nan"}]]"#, r#"[1,{"$f":"nan"}]"#)),
    ("nested: an error is an exception", Fails("calls", r#"["missing@1",1]"#, ErrorKind::User, "missing@1")),
    ("nested: an exception has a kind", Returns("caught", r#"["missing@1",1]"#, r#"["invalid",true]"#)),
    ("nested: calls in a row", Runs(nested_in_a_row)),
    ("checkpoint: the first state is sent", Runs(checkpoints::first)),
    ("checkpoint: a requested state is sent, and the call continues", Runs(checkpoints::requested)),
    ("checkpoint: a call stops after its state", Runs(checkpoints::stops)),
    ("checkpoint: a stop ends the other calls of its frame", Runs(checkpoints::stops_frame)),
    ("checkpoint: a call continues in another process", Runs(checkpoints::elsewhere)),
    ("checkpoint: a state beyond 1 MiB is invalid", Runs(checkpoints::too_large)),
    ("search: several in a row", Runs(search_in_a_row)),
    ("search: pause and go", Runs(search_pause)),
    ("search: a state continues in another process", Runs(search_elsewhere)),
    ("search: a state of a search with nothing left", Runs(search_empty)),
    ("search: another replaces a paused one", Runs(search_replaced)),
    ("search: a part is split off", Runs(search_split)),
    ("search: a part that cannot be split off", Runs(search_unsplit)),
    ("search: an offer", Runs(search_offer)),
    ("search: an offer above the bound is not sent", Runs(search_no_offer)),
    ("search: the bound changes while it runs", Runs(search_bound)),
    ("search: a bound that is being written is read again", Runs(search_unwritten_bound)),
    ("search: an exception", Runs(search_error)),
    ("exit: at the end of the pipe", Runs(exit)),
    ("cancel: a killed call leaves no process", Runs(cancel)),
];

/// Each type and sign, no, one and two dimensions.
const ARRAYS: &str = r#"[{"$a":{"dtype":"f64","shape":[2,1],"data":"AAAAAAAA+D8AAAAAAADw/w=="}},
{"$a":{"dtype":"f32","shape":[2],"data":"AACAPwAAwH8="}},{"$a":{"dtype":"i64","shape":[1],"data":"AAAAAAAAAIA="}},
{"$a":{"dtype":"i32","shape":[1,1],"data":"/////w=="}},{"$a":{"dtype":"i16","shape":[2],"data":"AQD+/w=="}},
{"$a":{"dtype":"i8","shape":[3],"data":"AID/"}},{"$a":{"dtype":"u64","shape":[1],"data":"//////////8="}},
{"$a":{"dtype":"u32","shape":[1],"data":"/////w=="}},{"$a":{"dtype":"u16","shape":[1],"data":"//8="}},
{"$a":{"dtype":"u8","shape":[0],"data":""}}]"#;

/// 1.5 and minus infinity, and twice that.
const DOUBLES: &str = r#"[{"$a":{"dtype":"f64","shape":[2],"data":"AAAAAAAA+D8AAAAAAADw/w=="}}]"#;
const DOUBLED: &str = r#"{"$a":{"dtype":"f64","shape":[2],"data":"AAAAAAAACEAAAAAAAADw/w=="}}"#;

impl Check {
    pub(super) fn run(&self, suite: &Suite) -> Checked {
        match *self {
            Returns(entry, argument, expected) => returns(suite, entry, argument, expected),
            Echoes(value) => returns(suite, "echo", &format!("[{value}]"), value),
            Fails(entry, argument, kind, part) => {
                check_error(Peer::loaded(suite, entry)?.call(argument)?, kind, part)
            }
            NotLoaded(entry, kind) => match Peer::start(suite, entry, kind)?.next()? {
                Step::NotLoaded(error) if !error.message.is_empty() => Ok(()),
                other => Err(format!("expected an error with a message, not {other:?}").into()),
            },
            Refuses(json) => {
                let mut peer = Peer::loaded(suite, "echo")?;
                peer.send(json)?;
                peer.ends().map(drop)
            }
            Runs(check) => check(suite),
        }
    }
}

pub(super) fn expect<T: PartialEq + std::fmt::Debug>(found: &T, expected: &T) -> Checked {
    let is_same = found == expected;
    is_same.then_some(()).ok_or_else(|| format!("expected {expected:.200?}, not {found:.200?}").into())
}

fn returns(suite: &Suite, entry: &str, argument: &str, expected: &str) -> Checked {
    let answer = Peer::loaded(suite, entry)?.call(argument)?;
    let answer = answer.map_err(|error| format!("the call has failed: {error:?}"))?;
    expect(&answer, &serde_json::from_str(expected)?)
}

fn hello_common(suite: &Suite) -> Checked {
    let mut peer = Peer::open(suite)?;
    peer.send(r#"{"type":"hello","versions":[1,999]}"#)?;
    load(suite, &mut peer, "")
}

fn load(suite: &Suite, peer: &mut Peer, more: &str) -> Checked {
    let folder = serde_json::to_string(&suite.folder)?;
    peer.send(&format!(
        r#"{{"type":"load","folder":{folder},"entry":"conform:echo","kind":"function"{more}}}"#
    ))?;
    peer.load()
}

fn hello_unknown(suite: &Suite) -> Checked {
    let mut peer = Peer::open(suite)?;
    peer.send(r#"{"type":"hello","versions":[999]}"#)?;
    peer.ends().map(drop)
}

fn hello_fields(suite: &Suite) -> Checked {
    let mut peer = Peer::open(suite)?;
    peer.send(r#"{"more":{"type":"x"},"versions":[1],"type":"hello"}"#)?;
    load(suite, &mut peer, r#","more":[1]"#)
}

fn value_deep(suite: &Suite) -> Checked {
    // The list of arguments is the first level.
    let deep = format!("{}1{}", "[".repeat(99), "]".repeat(99));
    returns(suite, "echo", &format!("[{deep}]"), &deep)
}

fn value_wrong_shapes(suite: &Suite) -> Checked {
    let mut peer = Peer::loaded(suite, "doubled")?;
    // The product of the first one, in bytes, is 0 modulo 2^64.
    for (shape, data) in [
        ("[67108864,67108864,4096]", ""),
        ("[1.5]", "AAAAAAAA+D8="),
        ("[-1]", ""),
        (r#""x""#, "AAAAAAAA+D8="),
        ("{}", "AAAAAAAA+D8="),
        ("[2]", "AAAAAAAA+D8="),
    ] {
        let array = format!(r#"[{{"$a":{{"dtype":"f64","shape":{shape},"data":"{data}"}}}}]"#);
        if let Ok(value) = peer.call(&array)? {
            return Err(format!("the shape {shape} is accepted, with the result {value}").into());
        }
    }
    Ok(())
}

fn call_fields(suite: &Suite) -> Checked {
    calls_seven(suite, r#"{"more":1,"argument":[7],"id":0,"type":"call"}"#, b"")
}

fn calls_seven(suite: &Suite, json: &str, bytes: &[u8]) -> Checked {
    let mut peer = Peer::loaded(suite, "echo")?;
    let frame = Frame { json: json.to_owned(), bytes: bytes.to_vec() };
    peer.runtime.send_calls(&frame.encode()?, (0..1).into(), 0);
    peer.check_seven()
}

const CALL: &str = r#"{"type":"call","id":0,"argument":[7]}"#;

fn call_many(suite: &Suite) -> Checked {
    let arguments: Vec<String> = (0..1000).map(|number| format!("[{number}]")).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let answers = Peer::loaded(suite, "echo")?.many(&arguments)?;
    let ids: BTreeSet<u64> = answers.iter().map(|(id, _)| *id).collect();
    expect(&ids.len(), &1000)?;
    let is_own = |(id, answer): &(u64, Result<Value, _>)| matches!(answer, Ok(value) if *value == json!(id));
    expect(&answers.iter().all(is_own), &true)
}

fn call_error_among_many(suite: &Suite) -> Checked {
    let answers = Peer::loaded(suite, "fails")?.many(&["[1]", "[-2]", "[3]"])?;
    let values: BTreeMap<u64, Option<Value>> =
        answers.into_iter().map(|(id, answer)| (id, answer.ok())).collect();
    expect(&values, &BTreeMap::from([(0, Some(json!(1))), (1, None), (2, Some(json!(3)))]))
}

fn call_after_error(suite: &Suite) -> Checked {
    let mut peer = Peer::loaded(suite, "fails")?;
    check_error(peer.call("[-1]")?, ErrorKind::User, "")?;
    expect(&peer.call("[1]")?.ok(), &Some(json!(1)))
}

fn frame_large(suite: &Suite) -> Checked {
    let text = "x".repeat(16 << 20);
    let answer = Peer::loaded(suite, "echo")?.call(&format!("[\"{text}\"]"))?;
    expect(&answer.ok().and_then(|value| value.as_str().map(str::len)), &Some(text.len()))
}

fn frame_result_too_large(suite: &Suite) -> Checked {
    let mut peer = Peer::loaded(suite, "large")?;
    check_error(peer.call(&format!("[{}]", 64 << 20))?, ErrorKind::Invalid, "")?;
    expect(&peer.call("[2]")?.ok(), &Some(json!("xx")))
}

fn frame_too_large(suite: &Suite) -> Checked {
    let mut peer = Peer::loaded(suite, "echo")?;
    peer.runtime.send_bytes(&[u32::MAX.to_le_bytes(), 2_u32.to_le_bytes()].concat());
    peer.ends().map(drop)
}

fn frame_in_pieces(suite: &Suite) -> Checked {
    let mut peer = Peer::loaded(suite, "echo")?;
    let frame = Frame::of_json(CALL.to_owned()).encode()?;
    let (last, first) = frame.split_last().ok_or("the frame is empty")?;
    for piece in first.chunks(3) {
        peer.runtime.send_bytes(piece);
        // So that the pieces arrive one by one.
        thread::sleep(Duration::from_millis(1));
    }
    peer.runtime.send_calls(&[*last], (0..1).into(), 0);
    peer.check_seven()
}

fn frame_cut(suite: &Suite) -> Checked {
    let mut peer = Peer::loaded(suite, "echo")?;
    let frame = Frame::of_json(CALL.to_owned()).encode()?;
    peer.runtime.send_bytes(&frame[..frame.len() - 1]);
    peer.runtime.hang_up()?;
    peer.ends().map(drop)
}

fn log_output(suite: &Suite) -> Checked {
    let mut peer = Peer::loaded(suite, "prints")?;
    expect(&peer.call(&format!("[{}]", 1 << 20))?.ok(), &Some(json!(1 << 20)))?;
    let deadline = Instant::now() + STEP_MAX;
    while !peer.runtime.log().contains("to standard error") {
        if Instant::now() >= deadline {
            return Err("its log has no output of standard error".into());
        }
        thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

fn nested_in_a_row(suite: &Suite) -> Checked {
    let call = r#"["conform@1",7]"#;
    let answers = Peer::loaded(suite, "calls")?.many(&[call, call, call])?;
    let sevens = answers.into_iter().filter(|(_, answer)| answer.as_ref().ok() == Some(&json!(7)));
    expect(&sevens.count(), &3)
}

fn start(peer: &mut Peer, argument: &str, state: Option<&[u8]>, bound: f64) -> Checked {
    let argument = RawValue::from_string(argument.to_owned())?;
    peer.runtime.search(&argument, state, bound).map_err(Reason::from)
}

fn check_complete(peer: &mut Peer, expected: &[(&str, i64)]) -> Checked {
    match peer.next()? {
        Step::Complete(counts) => check_counts(&counts, expected),
        other => Err(format!("expected the end of the search, not {other:?}").into()),
    }
}

fn check_counts(counts: &NewCounts, expected: &[(&str, i64)]) -> Checked {
    let expected = expected.iter().map(|(name, number)| ((*name).to_owned(), *number)).collect();
    expect(counts, &expected)
}

fn completes(peer: &mut Peer, argument: &str, counts: &[(&str, i64)]) -> Checked {
    start(peer, argument, None, f64::INFINITY)?;
    check_complete(peer, counts)
}

/// A paused search: the part that was split off, the rest, and the counted states.
type Paused = (Option<Vec<u8>>, Vec<u8>, i64);

/// Starts a search, and requests its state.
fn pause(peer: &mut Peer, argument: &str, request: Request) -> Result<Paused, Reason> {
    start(peer, argument, None, f64::INFINITY)?;
    match peer.next_asked(Some(request))? {
        Step::Paused { part, rest, counts } if !rest.is_empty() => Ok((part, rest, states(&counts))),
        other => Err(format!("expected a state, not {other:?}").into()),
    }
}

/// Pauses the running search again and again until it is complete, and returns the number of states.
fn finish(peer: &mut Peer) -> Result<i64, Reason> {
    let mut sum = 0;
    loop {
        match peer.next_asked(Some(Request::Pause))? {
            Step::Paused { part: None, counts, .. } => sum += states(&counts),
            Step::Complete(counts) => return Ok(sum + states(&counts)),
            other => return Err(format!("expected a state or the end, not {other:?}").into()),
        }
        peer.go()?;
        // So that the search advances.
        peer.read();
    }
}

fn states(counts: &NewCounts) -> i64 {
    counts.get("states").copied().unwrap_or_default()
}

fn search_in_a_row(suite: &Suite) -> Checked {
    let mut peer = Peer::search(suite)?;
    (1..4).try_for_each(|states| completes(&mut peer, &format!("[{states}]"), &[("states", states)]))
}

fn search_pause(suite: &Suite) -> Checked {
    let mut peer = Peer::search(suite)?;
    let (part, _, counted) = pause(&mut peer, "[1000,500]", Request::Pause)?;
    expect(&part, &None)?;
    peer.go()?;
    expect(&(counted + finish(&mut peer)?), &1000)
}

fn search_elsewhere(suite: &Suite) -> Checked {
    let (_, rest, counted) = pause(&mut Peer::search(suite)?, "[1000,400]", Request::Pause)?;
    let mut other = Peer::search(suite)?;
    start(&mut other, "[0]", Some(&rest), f64::INFINITY)?;
    expect(&(counted + finish(&mut other)?), &1000)
}

fn search_empty(suite: &Suite) -> Checked {
    let mut peer = Peer::search(suite)?;
    start(&mut peer, "[0,-1]", None, f64::INFINITY)?;
    let Step::Paused { rest, .. } = peer.next_asked(Some(Request::Pause))? else {
        return Err("expected a state".into());
    };
    let mut other = Peer::search(suite)?;
    start(&mut other, "[0]", Some(&rest), f64::INFINITY)?;
    check_complete(&mut other, &[])
}

fn search_replaced(suite: &Suite) -> Checked {
    let mut peer = Peer::search(suite)?;
    pause(&mut peer, "[1000,500]", Request::Pause)?;
    completes(&mut peer, "[7]", &[("states", 7)])
}

fn search_split(suite: &Suite) -> Checked {
    let mut peer = Peer::search(suite)?;
    let (part, _, counted) = pause(&mut peer, "[1001,501]", Request::Split)?;
    let part = part.ok_or("no part was split off")?;
    peer.go()?;
    let rest = finish(&mut peer)?;
    start(&mut peer, "[0]", Some(&part), f64::INFINITY)?;
    let part = finish(&mut peer)?;
    expect(&(counted + rest + part), &1001)?;
    // It is the smaller part of an odd number.
    expect(&part, &((1001 - counted) / 2))
}

fn search_unsplit(suite: &Suite) -> Checked {
    let mut peer = Peer::search(suite)?;
    let (part, _, counted) = pause(&mut peer, "[1,1]", Request::Split)?;
    expect(&(part, counted), &(None, 0))?;
    peer.go()?;
    expect(&finish(&mut peer)?, &1)
}

fn search_offer(suite: &Suite) -> Checked {
    let mut peer = Peer::search(suite)?;
    start(&mut peer, "[1,0,2.5]", None, f64::INFINITY)?;
    match peer.next()? {
        Step::Offered(offer) => {
            let solution: Value = serde_json::from_str(&offer.solution)?;
            expect(&(offer.cost, solution), &(2.5, json!({ "cost": 2.5 })))?;
        }
        other => return Err(format!("expected an offer, not {other:?}").into()),
    }
    check_complete(&mut peer, &[("states", 1)])
}

fn search_no_offer(suite: &Suite) -> Checked {
    let mut peer = Peer::search(suite)?;
    start(&mut peer, "[1,0,2.5]", None, 2.0)?;
    check_complete(&mut peer, &[("bound", 2), ("states", 1)])
}

fn search_bound(suite: &Suite) -> Checked {
    let mut peer = Peer::search(suite)?;
    start(&mut peer, "[1,1]", None, f64::INFINITY)?;
    peer.runtime.set_bounds([5.0; 2]);
    completes_with_bound(&mut peer, 5)
}

fn completes_with_bound(peer: &mut Peer, bound: i64) -> Checked {
    match peer.next_asked(Some(Request::Bound))? {
        Step::Complete(counts) => check_counts(&counts, &[("bound", bound), ("states", 1)]),
        other => Err(format!("expected the end of the search, not {other:?}").into()),
    }
}

fn search_unwritten_bound(suite: &Suite) -> Checked {
    let mut peer = Peer::search(suite)?;
    start(&mut peer, "[1,1]", None, f64::INFINITY)?;
    peer.runtime.set_bounds([3.0, 5.0]);
    peer.runtime.request(Some(Request::Bound));
    // So that the search reads the bound in this time.
    thread::sleep(Duration::from_millis(50));
    peer.runtime.set_bounds([4.0; 2]);
    completes_with_bound(&mut peer, 4)
}

fn search_error(suite: &Suite) -> Checked {
    let mut peer = Peer::search(suite)?;
    start(&mut peer, "[\"text\"]", None, f64::INFINITY)?;
    match peer.next()? {
        Step::Failed(error) if error.kind == ErrorKind::User && error.trace.contains("search") => {}
        other => return Err(format!("expected an error with a trace, not {other:?}").into()),
    }
    completes(&mut peer, "[7]", &[("states", 7)])
}

fn exit(suite: &Suite) -> Checked {
    let mut peer = Peer::loaded(suite, "echo")?;
    peer.runtime.hang_up()?;
    let end = peer.ends()?;
    if end.contains("exit status: 0") {
        Ok(())
    } else {
        Err(format!("expected the exit status 0: {end}").into())
    }
}

fn cancel(suite: &Suite) -> Checked {
    let mut peer = Peer::loaded(suite, "process")?;
    let process = peer.call("[]")?.ok().and_then(|id| id.as_u64()).ok_or("it returns no process id")?;
    let place = format!("/proc/{process}/stat");
    let is_alive = || std::fs::read_to_string(&place).is_ok_and(|state| !state.contains(") Z "));
    expect(&is_alive(), &true)?;
    drop(peer);
    let deadline = Instant::now() + STEP_MAX;
    while is_alive() {
        if Instant::now() >= deadline {
            return Err(format!("process {process} runs although its group was killed").into());
        }
        thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}
