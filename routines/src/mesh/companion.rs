//! The companion of the service job: connects the state machines to messages, threads and the clock.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Weak,
        atomic::{
            AtomicBool,
            Ordering::{Acquire, Release},
        },
    },
    time::Duration,
};

use serde_json::value::RawValue;
use taskwork::{
    NodeId,
    companion::{CompanionContext, CompanionEvent, Rescue},
};
use tokio::{
    sync::mpsc::{self, UnboundedReceiver, UnboundedSender},
    time::{Instant, MissedTickBehavior, interval},
};

use super::{
    Request, Requests,
    callee::{self, Callee, Key},
    caller::{self, Caller, REPEAT_MS, Ticket},
    companions,
    message::{Message, Spec, warm_key},
};
use crate::{
    call::{CallHere, failed},
    host::Host,
    progress::{DirectCalls, Progress},
    runtime::spawn_call,
    store::{Body, Outcome},
    wire::ErrorKind,
};

/// The interval of checks for messages to repeat and for abandoned calls.
const TICK: Duration = Duration::from_millis(REPEAT_MS);

/// Runs until the node's work on the service job is over.
pub(super) async fn run(
    mut cx: CompanionContext,
    requests: Requests,
    mut requested: UnboundedReceiver<Request>,
    provider: Weak<DirectCalls>,
) -> Result<(), String> {
    let host = Host::current();
    let (ended, mut ends) = mpsc::unbounded_channel();
    let mut shell = Shell {
        caller: Caller::new(rand::random()),
        callee: Callee::new(host.map_or(0, |_| cx.workers())),
        replies: BTreeMap::new(),
        running: BTreeMap::new(),
        start: Instant::now(),
        tickets: 0,
        host,
        ended,
        progress: provider.upgrade().map(|calls| calls.0.clone()).unwrap_or_default(),
    };
    if host.is_some() {
        // A process may be a gateway as well, which then has no other node.
        shell.callee.on_joined(cx.node());
        shell.caller.on_joined(cx.node());
    }
    cx.set_status_provider(provider);
    companions().insert(cx.job().clone(), requests.clone());
    let (mut ticks, mut rescue) = (interval(TICK), None);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            event = cx.next() => match event {
                Some(event) => shell.on_event(event, &mut rescue),
                None => break,
            },
            Some(request) = requested.recv() => shell.on_request(request),
            Some((key, outcome)) = ends.recv() => shell.on_end(key, outcome),
            _ = ticks.tick() => shell.on_tick(),
        }
        shell.execute(&cx);
        if shell.callee.is_idle() {
            // The node may leave.
            rescue = None;
        }
    }
    // A later companion of the job may have taken its place.
    companions().retain(|_, other| !other.same_channel(&requests));
    requested.close();
    while let Ok(request) = requested.try_recv() {
        // The request may be gone.
        let _ = request.reply.send(caller::Ended::NoNode);
    }
    shell.caller.on_over();
    shell.execute(&cx);
    // Their results would not be sent.
    shell.running.values().for_each(|stop| stop.store(true, Release));
    Ok(())
}

struct Shell {
    caller: Caller,
    callee: Callee,
    replies: BTreeMap<Ticket, tokio::sync::oneshot::Sender<caller::Ended>>,
    /// Running calls, each with a request to stop.
    running: BTreeMap<Key, Arc<AtomicBool>>,
    start: Instant,
    tickets: Ticket,
    host: Option<&'static Host>,
    ended: UnboundedSender<(Key, Body)>,
    /// Calls of the node, for the display of the job.
    progress: Progress,
}

impl Shell {
    fn now_ms(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn on_event(&mut self, event: CompanionEvent, rescue: &mut Option<Rescue>) {
        let now_ms = self.now_ms();
        match event {
            CompanionEvent::Joined { node } => {
                self.callee.on_joined(node);
                // Only gateways call: the loads are of no use to nodes.
                if self.host.is_none() {
                    self.caller.on_joined(node);
                }
            }
            CompanionEvent::Left { node } => {
                self.callee.on_left(node);
                self.caller.on_left(node);
            }
            CompanionEvent::Message { from, bytes } => {
                let Some(message) = Message::decode(&bytes) else {
                    return tracing::warn!(%from, "a message of a companion is damaged");
                };
                self.on_message(from, message);
            }
            CompanionEvent::Refused { to, number, .. } => self.caller.on_refused(to, number, now_ms),
            CompanionEvent::Cordon { is_cordoned } => self.callee.cordon(is_cordoned),
            CompanionEvent::Rescue(asked) => {
                self.callee.leave();
                *rescue = Some(asked);
            }
            _ => {}
        }
    }

    fn on_message(&mut self, from: NodeId, message: Message) {
        let now_ms = self.now_ms();
        self.set_warm();
        if message.is_of_caller() {
            self.callee.on_message(from, message, now_ms);
        } else {
            self.caller.on_message(from, message, now_ms);
        }
    }

    fn set_warm(&mut self) {
        let keys = self.host.map(|host| host.pool.keys()).unwrap_or_default();
        self.callee.set_warm(keys.iter().map(|key| warm_key(key)).collect());
    }

    fn on_request(&mut self, Request { spec, reply }: Request) {
        self.tickets += 1;
        self.replies.insert(self.tickets, reply);
        self.caller.on_call(self.tickets, spec, self.now_ms());
    }

    fn on_end(&mut self, key: Key, outcome: Body) {
        self.running.remove(&key);
        self.set_warm();
        self.callee.on_outcome(key, outcome, self.now_ms());
    }

    fn on_tick(&mut self) {
        let now_ms = self.now_ms();
        let late = failed(ErrorKind::Timeout, "the call has waited for a free slot for too long".to_owned());
        self.callee.on_tick(&Body::Inline(json(&late)), now_ms);
        self.replies.retain(|&ticket, reply| {
            if reply.is_closed() {
                self.caller.on_abandoned(ticket);
            }
            !reply.is_closed()
        });
        self.caller.on_tick(now_ms);
    }

    /// Executes the effects of the state machines, which may have further ones. Messages to this node do not leave it.
    fn execute(&mut self, cx: &CompanionContext) {
        loop {
            let (callee, caller) = (self.callee.take_effects(), self.caller.take_effects());
            if callee.is_empty() && caller.is_empty() {
                break;
            }
            for effect in callee {
                match effect {
                    callee::Effect::Send(to, message) if to == cx.node() => self.on_message(to, message),
                    callee::Effect::Send(to, message) => drop(cx.messenger().send(to, message.encode())),
                    callee::Effect::Start(key, spec) => self.run_call(key, spec),
                    callee::Effect::Stop(key) => {
                        self.running.get(&key).inspect(|stop| stop.store(true, Release));
                    }
                }
            }
            for effect in caller {
                match effect {
                    caller::Effect::Send(to, message) if to == cx.node() => self.on_message(to, message),
                    caller::Effect::Send(to, message) => {
                        let sent = cx.messenger().send(to, message.encode()).ok();
                        if let Message::Call { number, .. } = message {
                            self.caller.on_sent(to, number, sent, self.now_ms());
                        }
                    }
                    caller::Effect::End(ticket, ended) => {
                        // The request may be gone.
                        let _ = self.replies.remove(&ticket).map(|reply| reply.send(ended));
                    }
                }
            }
        }
    }

    fn run_call(&mut self, key: Key, spec: Spec) {
        let (stop, ended) = (Arc::new(AtomicBool::new(false)), self.ended.clone());
        self.running.insert(key, Arc::clone(&stop));
        let (host, progress) = (self.host, self.progress.clone());
        let running = spawn_call(move || {
            let running = progress.run(1);
            let outcome = host.map_or_else(
                || failed(ErrorKind::Invalid, "this process is not a node of routines".to_owned()),
                |host| make(host, &spec, &stop),
            );
            drop(running);
            let has_failed = matches!(outcome, Outcome::Error(_));
            progress.add(u64::from(!has_failed), u64::from(has_failed));
            let encoded = json(&outcome);
            let body = host.and_then(|host| host.store.body(&encoded).ok()).unwrap_or_else(|| {
                let reason = "the result cannot be written to the store".to_owned();
                Body::Inline(json(&failed(ErrorKind::Invalid, reason)))
            });
            // The companion may be gone.
            let _ = ended.send((key, body));
        });
        if let Err(error) = running {
            let outcome = failed(ErrorKind::Crash, format!("the call cannot be started: {error}"));
            let _ = self.ended.send((key, Body::Inline(json(&outcome))));
        }
    }
}

fn make(host: &Host, spec: &Spec, stop: &AtomicBool) -> Outcome {
    let argument = host.store.content(&spec.argument).map_err(|error| error.to_string());
    let argument = argument.and_then(|json| RawValue::from_string(json).map_err(|error| error.to_string()));
    let argument = match argument {
        Ok(argument) => argument,
        Err(error) => {
            return failed(ErrorKind::Invalid, format!("the argument cannot be read: {error}"));
        }
    };
    let installed = match host.packages.get(&host.store, &spec.digest) {
        Ok(installed) => installed,
        Err(error) => return failed(ErrorKind::Invalid, format!("the package cannot be used: {error}")),
    };
    let limit = Some(Duration::from_millis(spec.limit_ms));
    CallHere::new(host, installed, argument, 0, limit, spec.tenant.clone()).run(&|| stop.load(Acquire))
}

fn json(outcome: &Outcome) -> String {
    serde_json::to_string(outcome).expect("outcomes are JSON")
}
