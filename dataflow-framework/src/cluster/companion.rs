//! The companion of a job: an event loop.

use std::{
    future::ready,
    sync::{Arc, Weak, atomic::Ordering::Relaxed},
    time::Duration,
};

use taskwork::companion::{CompanionContext, CompanionEvent, Refusal};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use super::{journaling::Journaling, workflow_node::WorkflowNode};
use crate::{
    core::{Capacity, HOLD_MS},
    node::Crew,
};

/// The interval of checks for messages to resend.
const LOOK: Duration = Duration::from_millis(50);

/// The time for which held messages wait for more.
const HOLD: Duration = Duration::from_millis(HOLD_MS);

/// The maximum number of events to process before the resulting messages are sent.
const EVENTS_MAX: usize = 64;

/// Runs until the node's work on the job is over.
pub(super) async fn run(mut cx: CompanionContext, workflow_node: Arc<WorkflowNode>) -> Result<(), String> {
    let workers = cx.workers();
    let crew = Crew::start(&workflow_node.queue, workers)
        .map_err(|error| format!("no thread could be started: {error}"))?;
    workflow_node.queue.use_places(cx.places());
    let capacity = Capacity {
        workers: u32::try_from(workers).unwrap_or(u32::MAX),
        memory: cx.memory_bytes(),
        labels: cx.labels().clone(),
        ..Capacity::default()
    };
    let (messenger, objects) = (cx.messenger().clone(), cx.objects().clone());
    workflow_node.start(messenger, objects, cx.node(), capacity, !cx.is_public());
    let provider: Weak<WorkflowNode> = Arc::downgrade(&workflow_node);
    cx.set_status_provider(provider);
    workflow_node.is_public.store(cx.is_public(), Relaxed);
    let mut journaling = Journaling::new(cx.journal().clone());
    let started = Instant::now();
    let now_ms = || u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    let mut looks = interval(LOOK);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut is_held = false;
    'events: loop {
        tokio::select! {
            biased;
            event = cx.next() => match event {
                None => break,
                Some(event) => on_event(&workflow_node, event, now_ms()),
            },
            () = workflow_node.wake.notified() => {}
            () = journaling.done() => {}
            _ = looks.tick() => {}
            () = sleep(HOLD), if is_held => {}
        }
        // Several events often lead to one message.
        for _ in 1..EVENTS_MAX {
            tokio::select! {
                biased;
                event = cx.next() => match event {
                    None => break 'events,
                    Some(event) => on_event(&workflow_node, event, now_ms()),
                },
                () = ready(()) => break,
            }
        }
        journaling.begin(workflow_node.leading(), now_ms());
        is_held = workflow_node.send_due(now_ms());
    }
    workflow_node.end();
    // Running tasks run to completion, but the exit does not wait for them.
    crew.leave();
    Ok(())
}

fn on_event(workflow_node: &WorkflowNode, event: CompanionEvent, now_ms: u64) {
    match event {
        CompanionEvent::Joined { node } => workflow_node.joined(node),
        CompanionEvent::Left { node } => workflow_node.left(node),
        CompanionEvent::Message { from, bytes } => workflow_node.message(from, &bytes, now_ms),
        CompanionEvent::Cordon { is_cordoned } => workflow_node.on_cordon(is_cordoned),
        CompanionEvent::Rescue(rescue) => workflow_node.leave(rescue),
        CompanionEvent::Refused { to, why: Refusal::Absent, .. } => workflow_node.on_absent(to),
        // A refused message is sent again, like a lost one.
        _ => {}
    }
}
