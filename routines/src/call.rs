//! One call on this node, on the thread of its caller: a direct call, or a nested one.

use std::time::{Duration, Instant};

use serde_json::value::RawValue;

use crate::{
    host::Host,
    library::LATEST_AGE_MAX,
    resource::{Files, Local},
    runtime::{ANSWER_LATE_MAX, CRASHES_MAX, Event, Installed, LOADS_MAX, NestedCall, Runtime},
    store::Outcome,
    wire::{CallError, EntryKind, ErrorKind, Step},
};

/// The maximum time between two checks whether the call is abandoned or late.
const CHECK: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub(crate) struct CallHere<'a> {
    pub(crate) argument: Box<RawValue>,
    pub(crate) depth: u32,
    /// The time limit from now on. That of the routine starts when a runtime has loaded it.
    pub(crate) limit: Option<Duration>,
    pub(crate) installed: &'a Installed,
}

#[derive(Debug, Clone, Copy)]
struct Deadline {
    at: Instant,
    limit: Duration,
}

impl Deadline {
    fn after(limit: Duration) -> Self {
        Self { at: Instant::now() + limit + ANSWER_LATE_MAX, limit }
    }
}

/// The end of an attempt.
enum Attempt {
    Ended(Outcome),
    /// The runtime was lost, with this reason, and whether it had the call.
    Lost(String, bool),
}

impl CallHere<'_> {
    /// Makes the call. If it is abandoned, its process is stopped.
    pub(crate) fn run(&self, host: &Host, is_abandoned: &dyn Fn() -> bool) -> Outcome {
        let package = &self.installed.package;
        if package.description.kind == EntryKind::Search {
            let reason = format!("{} is a search, not a function", package.name());
            return failed(ErrorKind::Invalid, reason);
        }
        let deadline = self.limit.map(Deadline::after);
        let mut files = Files::new(&host.resources, &host.store);
        let argument = match self.localise(&mut files, host, deadline, is_abandoned) {
            Ok(argument) => argument,
            Err(failed) => return failed,
        };
        let (mut loads, mut crashes) = (0, 0);
        loop {
            let mut runtime = match host.runtime(package) {
                Ok(runtime) => runtime,
                Err(error) => return failed(ErrorKind::Crash, error.to_string()),
            };
            // The death of an idle runtime is no failure of the package.
            let is_new = !runtime.exchange().is_loaded();
            match self.attempt(&argument, &mut runtime, deadline, is_abandoned) {
                Attempt::Ended(outcome) => {
                    if runtime.exchange().is_loaded() && runtime.exchange().unanswered().is_empty() {
                        host.keep(self.installed, runtime);
                    }
                    return outcome;
                }
                Attempt::Lost(reason, has_call) => {
                    (loads, crashes) =
                        if has_call { (0, crashes + 1) } else { (loads + u32::from(is_new), crashes) };
                    tracing::info!(routine = package.name(), reason, has_call, "a runtime was lost");
                    let is_final = has_call && !package.description.idempotent;
                    if is_final || loads >= LOADS_MAX || crashes >= CRASHES_MAX {
                        return failed(ErrorKind::Crash, reason);
                    }
                }
            }
        }
    }

    /// Returns the argument with the paths of its files, once they are here.
    fn localise(
        &self,
        files: &mut Files<'_>,
        host: &Host,
        deadline: Option<Deadline>,
        is_abandoned: &dyn Fn() -> bool,
    ) -> Result<Box<RawValue>, Outcome> {
        loop {
            match files.localise(self.argument.clone()) {
                Local::Ready(argument) => return Ok(argument),
                Local::Failed(reason) => return Err(failed(ErrorKind::Invalid, reason)),
                Local::Later if is_abandoned() => {
                    return Err(failed(ErrorKind::Timeout, "the call was abandoned".to_owned()));
                }
                Local::Later if deadline.is_some_and(|end| Instant::now() >= end.at) => {
                    let reason = "the resources of the call have not arrived in time".to_owned();
                    return Err(failed(ErrorKind::Timeout, reason));
                }
                Local::Later => host.resources.wait(CHECK),
            }
        }
    }

    fn attempt(
        &self,
        argument: &RawValue,
        runtime: &mut Runtime,
        mut deadline: Option<Deadline>,
        is_abandoned: &dyn Fn() -> bool,
    ) -> Attempt {
        let mut is_sent = false;
        loop {
            let left = deadline.map_or(CHECK, |end| end.at.saturating_duration_since(Instant::now()));
            // An idle runtime may have died: then it never had the call.
            let is_ready = !is_sent && runtime.exchange().is_loaded();
            for event in runtime.poll(if is_ready { Duration::ZERO } else { left.min(CHECK) }) {
                match event {
                    Event::Step(Step::Answered(answers)) => {
                        let Some((_, answer)) = answers.into_iter().next() else { continue };
                        return Attempt::Ended(self.installed.outcome(answer));
                    }
                    Event::Step(Step::NotLoaded(error)) => {
                        let name = self.installed.package.name();
                        let message = format!("routine {name} cannot be loaded: {}", error.message);
                        return Attempt::Ended(Outcome::Error(CallError { message, ..error }));
                    }
                    Event::Step(_) => {}
                    Event::Broken(reason) => return Attempt::Lost(reason, is_sent),
                }
            }
            if let Some(reason) = runtime.late_load() {
                return Attempt::Lost(reason, is_sent);
            }
            if let Some(end) = deadline.filter(|_| left.is_zero()) {
                return Attempt::Ended(failed(ErrorKind::Timeout, runtime.exceeded(end.limit)));
            }
            if is_abandoned() {
                return Attempt::Ended(failed(ErrorKind::Timeout, "the call was abandoned".to_owned()));
            }
            if runtime.exchange().is_loaded() && !is_sent {
                is_sent = true;
                let own = self.installed.package.description.timeout().map(Deadline::after);
                deadline = deadline.into_iter().chain(own).min_by_key(|end| end.at);
                if let Err(error) = runtime.call(&[(0, argument.to_owned())], None, self.depth) {
                    let reason = format!("the argument is too large: {error}");
                    return Attempt::Ended(failed(ErrorKind::Invalid, reason));
                }
            }
        }
    }
}

/// Makes a call of a routine on this node, in the slot of the routine.
pub(crate) fn call_nested(call: &NestedCall) -> Outcome {
    let Some(host) = Host::current() else {
        return failed(ErrorKind::Invalid, "this process is not a node of routines".to_owned());
    };
    let installed = match host.packages.named(&host.store, &call.routine, LATEST_AGE_MAX) {
        Ok(installed) => installed,
        Err(error) => return failed(ErrorKind::Invalid, error.to_string()),
    };
    let parameters = installed.package.description.parameters.as_ref();
    if let Err(reason) = parameters.map_or(Ok(()), |of| of.check(call.argument.get())) {
        let name = installed.package.name();
        return failed(ErrorKind::Invalid, format!("the argument of {name}, {reason}"));
    }
    let here =
        CallHere { argument: call.argument.clone(), depth: call.depth, limit: None, installed: &installed };
    here.run(host, &|| call.is_abandoned())
}

pub(crate) fn failed(kind: ErrorKind, reason: String) -> Outcome {
    Outcome::Error(CallError::new(kind, reason))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        package::Package,
        testing::{Fixture, fixture, package},
    };

    const MODULE: &str = r#"
import os, threading, time
import routines

def caught(name):
    try:
        routines.call(name, 1)
    except routines.CallError as error:
        return [error.kind, error.message.partition("\n")[0], "in fails" in error.trace]

def fails(n):
    raise ValueError(f"no {n}")

def uncaught(name):
    return routines.call(name, [1, 2.5, 2 ** 60])

def elsewhere(name):
    errors = []
    def call():
        try:
            routines.call(name, 1)
        except RuntimeError as error:
            errors.append(str(error))
    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    return errors

def crashes(n):
    with open(FOLDER + "/crashes", "a") as notes:
        notes.write(f"{n}\n")
    os.abort()

def returns(n):
    return n

def forks(name):
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            routines.call(name, 1)
        except RuntimeError as error:
            os.write(writes, str(error).encode())
        finally:
            os._exit(0)
    os.close(writes)
    os.waitpid(child, 0)
    return os.read(reads, 1000).decode()

def sleeps(n):
    time.sleep(3600)
"#;

    fn deployed(entry: &str, more: &str) -> Package {
        deployed_with(MODULE, entry, more)
    }

    fn deployed_with(module: &str, entry: &str, more: &str) -> Package {
        let Fixture { folder, store } = fixture();
        let package = package(folder, module, entry, more);
        store.deploy(&package).unwrap();
        package
    }

    /// Calls a routine of the module, and returns the outcome as JSON.
    fn call(package: &Package, argument: &str, limit_ms: u64) -> serde_json::Value {
        let host = fixture();
        let installed =
            Host::current().unwrap().packages.named(&host.store, &package.name(), LATEST_AGE_MAX).unwrap();
        let argument = RawValue::from_string(argument.to_owned()).unwrap();
        let limit = Some(Duration::from_millis(limit_ms));
        let here = CallHere { argument, depth: 0, limit, installed: &installed };
        serde_json::to_value(here.run(Host::current().unwrap(), &|| false)).unwrap()
    }

    const LONG: u64 = 60_000;

    #[test]
    fn nested_calls_return_values_and_errors_to_their_callers() {
        let fails = deployed("fails", "");
        let caught = call(&deployed("caught", ""), &format!("[{:?}]", fails.name()), LONG);
        assert_eq!(caught["value"], serde_json::json!(["user", "ValueError: no 1", true]));
        let missing = call(&deployed("caught", ""), "[\"missing@1\"]", LONG);
        assert_eq!(missing["value"][0], "invalid", "{missing}");
        let error = &call(&deployed("uncaught", ""), &format!("[{:?}]", fails.name()), LONG)["error"];
        let trace = error["trace"].as_str().unwrap();
        assert!(trace.contains("in uncaught") && trace.contains("in fails"), "{trace}");
        assert!(trace.contains("no [1, 2.5, 1152921504606846976]"), "{trace}");
        let elsewhere = call(&deployed("elsewhere", ""), &format!("[{:?}]", fails.name()), LONG);
        assert!(elsewhere["value"][0].as_str().unwrap().contains("in the thread"), "{elsewhere}");
        let forks = call(&deployed("forks", ""), &format!("[{:?}]", fails.name()), LONG);
        assert!(forks["value"].as_str().unwrap().contains("in the process"), "{forks}");
    }

    #[test]
    fn crashed_runtime_is_replaced_for_idempotent_calls_only() {
        for (more, times) in [("", 1), ("idempotent = true", CRASHES_MAX as usize)] {
            let crashes = deployed("crashes", more);
            let source = fixture().folder.join(&crashes.description.name);
            assert_eq!(call(&crashes, "[5]", LONG)["error"]["kind"], "crash");
            let notes = std::fs::read_to_string(source.join("crashes")).unwrap();
            assert_eq!(notes.lines().count(), times, "{more}");
        }
    }

    #[test]
    fn time_limit_of_a_routine_does_not_include_its_load() {
        let module = format!("import time\ntime.sleep(2)\n{MODULE}");
        let slow = deployed_with(&module, "returns", "timeout = 1");
        assert_eq!(call(&slow, "[5]", LONG), serde_json::json!({"value": 5}));
        let late = call(&deployed_with(&module, "returns", "timeout = 1"), "[5]", 500);
        assert!(late["error"]["message"].as_str().unwrap().contains("0.5 s"), "{late}");
    }

    #[test]
    fn dead_idle_runtimes_are_replaced_without_a_failure() {
        let package = deployed("returns", "");
        let host = Host::current().unwrap();
        // As many as fail a call if they are new.
        let runtimes: Vec<_> = (0..LOADS_MAX).map(|_| host.runtime(&package).unwrap()).collect();
        for mut runtime in runtimes {
            while !runtime.exchange().is_loaded() {
                runtime.poll(CHECK);
            }
            runtime.kill();
            while !runtime.poll(CHECK).iter().any(|event| matches!(event, Event::Broken(_))) {}
            host.pool.put(&package.digest, runtime);
        }
        assert_eq!(call(&package, "[5]", LONG), serde_json::json!({"value": 5}));
    }

    #[test]
    fn late_and_abandoned_calls_end() {
        let late = call(&deployed("sleeps", "timeout = 0.5"), "[1]", LONG);
        assert!(late["error"]["message"].as_str().unwrap().contains("0.5 s"), "{late}");
        assert_eq!(call(&deployed("sleeps", ""), "[1]", 500)["error"]["kind"], "timeout");
        // Also the nested call of an abandoned one.
        let outer = deployed("uncaught", "timeout = 1");
        let late = call(&outer, &format!("[{:?}]", deployed("sleeps", "").name()), LONG);
        assert_eq!(late["error"]["kind"], "timeout", "{late}");
    }
}
