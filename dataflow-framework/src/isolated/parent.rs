//! The process that has a call run by another one, and its answer to whatever happens to that.

use std::{
    io::{self, BufReader, PipeReader, Read},
    process::{Command, Stdio},
    sync::mpsc::{self, RecvTimeoutError, Sender},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use super::{
    GREETING, Request, Response, VARIABLE,
    stream::{Broken, receive, receive_value, send, send_value},
};
use crate::{
    core::Assignment,
    failure::Failed,
    file::{Folder, WORK_DIR_VARIABLE, hear, shown},
    ids::Argument,
    node::{exceeded, shown_bytes, time_left},
    process::{Group, Killer},
    value::Value,
};

/// How long a process may take until it says that it is to run a call.
const GREETING_MAX: Duration = Duration::from_secs(60);

/// How long is waited for the end of what a process has said that is gone.
const SAID_LATE_MAX: Duration = Duration::from_millis(200);

/// What the program itself is, also if its file was replaced meanwhile.
const PROGRAM: &str = "/proc/self/exe";

/// Runs the task of a call in a process of its own, which is killed when the [time is over](time_left).
pub(crate) fn run(assignment: &Assignment, inputs: &[Value]) -> Result<Vec<Value>, Failed> {
    let (hears, says) = io::pipe().map_err(Failed::of_node)?;
    // Its own directory, since a process that is killed removes nothing.
    let folder = Folder::new().map_err(Failed::of_node)?;
    let mut command = Command::new(PROGRAM);
    command
        .env(VARIABLE, std::process::id().to_string())
        .env(WORK_DIR_VARIABLE, folder.path())
        // The last that it says is to be the reason.
        .env("RUST_BACKTRACE", "0")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(says);
    let group = Group::start(&mut command);
    drop(command);
    let mut group = group.map_err(|error| {
        Failed::of_node(format!("no process could be started for an isolated call: {error}"))
    })?;
    let listener = Listener::start(hears);
    let guard = Guard::start(group.killer(), time_left());
    let asked = ask(&mut group, &guard, assignment, inputs);
    let was_killed = guard.end();
    let broken = match asked {
        Ok(written) => return written,
        Err(Broken::Here(failed)) => return Err(failed),
        Err(Broken::Pipe(error)) => error,
    };
    match (was_killed, assignment.manner.timeout) {
        (Some(Late::Call), Some(timeout)) => return Err(exceeded(timeout)),
        (Some(_), _) => return Err(Failed::of(not_served("it has not said so in time"))),
        (None, _) => {}
    }
    if broken.kind() == io::ErrorKind::InvalidInput {
        group.kill().map_err(Failed::of_node)?;
        return Err(Failed::of(not_served("it has said something else")));
    }
    let status = group.child.wait().map_err(Failed::of_node)?;
    let said = listener.end();
    if broken.kind() == io::ErrorKind::NotConnected {
        return Err(Failed::of(not_served(&format!("it has ended, {status}{said}"))));
    }
    let limit = assignment.manner.memory_max.map_or_else(String::new, |bytes| {
        format!(" (it may take {} of memory: `memory_max`)", shown_bytes(bytes))
    });
    Err(Failed::of(format!("its process has ended before it has answered: {status}{limit}{said}")))
}

/// Says that a program does not serve isolated calls, and what to do.
fn not_served(why: &str) -> String {
    format!(
        "it is isolated, but the process that was started for it does not run it ({why}): the `main` of the program has \
         to begin with `dataflow_framework::cli::main`, or with `dataflow_framework::serve_isolated`"
    )
}

/// Has the call run, and returns how it has ended.
fn ask(
    group: &mut Group,
    guard: &Guard,
    assignment: &Assignment,
    inputs: &[Value],
) -> Result<Result<Vec<Value>, Failed>, Broken> {
    let mut to = group.child.stdin.take().expect("it is a pipe");
    let mut from = BufReader::new(group.child.stdout.take().expect("it is a pipe"));
    let mut greeting = [0; GREETING.len()];
    from.read_exact(&mut greeting).map_err(|_| io::Error::from(io::ErrorKind::NotConnected))?;
    if greeting != GREETING {
        return Err(Broken::Pipe(io::ErrorKind::InvalidInput.into()));
    }
    guard.is_greeted();
    let left = time_left().map(|left| u64::try_from(left.as_millis()).unwrap_or(u64::MAX));
    let request = Request {
        module: assignment.task.module.to_owned(),
        name: assignment.task.name.to_owned(),
        arguments: assignment.arguments.to_vec(),
        inputs: inputs.len(),
        left_ms: left,
        memory_max: assignment.manner.memory_max,
        once_token: assignment.manner.once_token,
    };
    send(&mut to, &request)?;
    let versions = assignment.arguments.iter().flat_map(Argument::versions);
    for (value, version) in inputs.iter().zip(versions) {
        send_value(&mut to, value).map_err(|broken| match broken {
            Broken::Here(failed) => Broken::Here(failed.of_version(*version)),
            pipe @ Broken::Pipe(_) => pipe,
        })?;
    }
    Ok(match receive(&mut from)? {
        Response::Failed { reason, is_of_node: true } => Err(Failed::of_node(reason)),
        Response::Failed { reason, is_of_node: false } => Err(Failed::of(reason)),
        Response::Written(versions) => {
            let written = (0..versions).map(|_| receive_value(&mut from));
            Ok(written.collect::<Result<_, _>>()?)
        }
    })
}

/// Hears what a process says on its standard error.
struct Listener(mpsc::Receiver<Vec<u8>>);

impl Listener {
    fn start(from: PipeReader) -> Self {
        let (tell, told) = mpsc::channel();
        let listen = move || drop(tell.send(hear(from)));
        if let Err(error) = thread::Builder::new().name("listener".to_owned()).spawn(listen) {
            tracing::warn!(%error, "no thread could be started that hears what an isolated call says");
        }
        Self(told)
    }

    /// Returns the last that was heard, as it is shown.
    fn end(self) -> String {
        shown(&self.0.recv_timeout(SAID_LATE_MAX).unwrap_or_default())
    }
}

/// Kills a process that takes too long.
struct Guard {
    tell: Sender<()>,
    thread: Option<JoinHandle<Option<Late>>>,
}

/// What has taken too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Late {
    Greeting,
    Call,
}

impl Guard {
    fn start(killer: Killer, left: Option<Duration>) -> Self {
        let (tell, told) = mpsc::channel::<()>();
        let begun = Instant::now();
        let watch = move || {
            let first = left.unwrap_or(GREETING_MAX).min(GREETING_MAX);
            let is_call = left.is_some_and(|left| left <= GREETING_MAX);
            let mut late = match told.recv_timeout(first) {
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) if is_call => Some(Late::Call),
                Err(RecvTimeoutError::Timeout) => Some(Late::Greeting),
                Ok(()) => None,
            };
            if let (None, Some(left)) = (late, left) {
                match told.recv_timeout(left.saturating_sub(begun.elapsed())) {
                    Err(RecvTimeoutError::Timeout) => late = Some(Late::Call),
                    _ => return None,
                }
            }
            if late.is_some() {
                killer.kill();
            }
            late
        };
        let thread = thread::Builder::new().name("guard".to_owned()).spawn(watch);
        let thread = thread.inspect_err(|error| {
            tracing::warn!(%error, "no thread could be started that ends an isolated call in time");
        });
        Self { tell, thread: thread.ok() }
    }

    /// Tells that the process has said that it is to run the call.
    fn is_greeted(&self) {
        // If it has killed the process, that is noticed.
        let _ = self.tell.send(());
    }

    /// Returns what has taken too long, if the process was killed.
    fn end(self) -> Option<Late> {
        drop(self.tell);
        self.thread.and_then(|thread| thread.join().ok().flatten())
    }
}
