//! The program of a simulated node: a thread that runs only while the rest of the simulation is blocked.
//!
//! The simulator has one thread, which executes one event after another. A program waits in the middle of its
//! code, so it needs another thread. Only the thread with the *turn* runs. The program returns the turn
//! where it would wait, and gets it again in virtual time, when its condition may have become true.

use std::{
    cell::RefCell,
    io,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use dataflow_framework::simulation::{Seen, World as _, stop};
use taskwork::NodeId;
use tokio::{
    runtime::Handle,
    sync::Notify,
    time::{Instant, sleep_until},
};

use super::World;

/// The turn of two threads: it decides which one runs.
#[derive(Debug)]
pub(super) struct Turn {
    state: Mutex<State>,
    passed: Condvar,
}

#[derive(Debug)]
struct State {
    holder: Holder,
    /// Whether the program must exit where it waits, because its world has ended.
    is_over: bool,
    /// Whether the program got the turn because its condition may have become true.
    in_time: bool,
}

#[derive(Debug)]
enum Holder {
    Program,
    /// The simulator, until this is notified or the deadline has passed.
    Simulator(Arc<Notify>, Option<Instant>),
    /// The simulator, permanently: the program has exited.
    Nobody,
}

thread_local! {
    static CURRENT: RefCell<Option<Current>> = const { RefCell::new(None) };
}

/// The program on a thread.
struct Current {
    turn: Arc<Turn>,
    world: World,
    node: NodeId,
}

/// Suspends the program on this thread for a while.
///
/// # Panics
/// If this is not the program of a simulated node.
pub(crate) fn pause(time: Duration) {
    let turn = Turn::current().expect("it is called by the program of a simulated node");
    turn.pass(&Arc::new(Notify::new()), Some(Instant::now() + time));
}

/// Reports a read of the program on this thread to the world: its number, and the expected and the actual
/// value.
///
/// # Panics
/// If this is not the program of a simulated node.
pub(crate) fn show_read(number: u64, expected: u64, read: u64) {
    CURRENT.with_borrow(|current| {
        let Current { world, node, .. } =
            current.as_ref().expect("it is called by the program of a simulated node");
        world.see(*node, &Seen::Reads { number, expected, read });
    });
}

impl Turn {
    /// Returns the turn of the program on this thread, if it is the program of a simulated node.
    pub(super) fn current() -> Option<Arc<Self>> {
        CURRENT.with_borrow(|current| current.as_ref().map(|current| Arc::clone(&current.turn)))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Passes the turn to the simulator, and waits to get it again. Returns whether that was before the
    /// deadline.
    pub(super) fn pass(&self, until: &Arc<Notify>, at_the_latest: Option<Instant>) -> bool {
        let mut state = self.lock();
        if !state.is_over {
            state.holder = Holder::Simulator(Arc::clone(until), at_the_latest);
            self.passed.notify_all();
            state = self.wait_for_turn(state);
        }
        let (is_over, in_time) = (state.is_over, state.in_time);
        drop(state);
        if is_over && !thread::panicking() {
            stop();
        }
        in_time
    }

    /// Waits until the program has the turn.
    fn wait_for_turn<'a>(&self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        while !matches!(state.holder, Holder::Program) {
            state = self.passed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state
    }

    /// Runs the program until it waits. Returns its condition; `None` if it has exited.
    fn hand_over(&self, in_time: bool) -> Option<(Arc<Notify>, Option<Instant>)> {
        let mut state = self.lock();
        if matches!(state.holder, Holder::Nobody) {
            return None;
        }
        state.in_time = in_time;
        state.holder = Holder::Program;
        self.passed.notify_all();
        loop {
            match &state.holder {
                Holder::Program => {
                    state = self.passed.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
                Holder::Simulator(until, at_the_latest) => return Some((Arc::clone(until), *at_the_latest)),
                Holder::Nobody => return None,
            }
        }
    }
}

/// Returns the turn permanently when the program exits for any reason.
struct Ends(Arc<Turn>);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.lock().holder = Holder::Nobody;
        self.0.passed.notify_all();
    }
}

/// Ends the program when the world ends.
struct Runs(Arc<Turn>);

impl Drop for Runs {
    fn drop(&mut self) {
        self.0.lock().is_over = true;
        while self.0.hand_over(true).is_some() {}
    }
}

/// The time until a notified program continues, in milliseconds.
const STEP_MS: u64 = 1;

/// Starts the program of a node.
pub(super) fn start(world: &World, node: NodeId, program: Box<dyn FnOnce() + Send>) -> io::Result<()> {
    let state = State { holder: Holder::Simulator(Arc::default(), None), is_over: false, in_time: true };
    let turn = Arc::new(Turn { state: Mutex::new(state), passed: Condvar::new() });
    let (its_turn, its_world, time) = (Arc::clone(&turn), world.clone(), Handle::current());
    thread::Builder::new().name("simulated program".to_owned()).spawn(move || {
        let ends = Ends(its_turn);
        let first = ends.0.wait_for_turn(ends.0.lock());
        let is_over = first.is_over;
        drop(first);
        if !is_over {
            // The program uses the clock of the simulator.
            let _in_time = time.enter();
            CURRENT.set(Some(Current { turn: Arc::clone(&ends.0), world: its_world, node }));
            program();
        }
    })?;
    tokio::spawn(run(Runs(turn), world.clone(), node));
    Ok(())
}

async fn run(runs: Runs, world: World, node: NodeId) {
    let mut in_time = true;
    loop {
        world.clone().wait_on(node, STEP_MS).await;
        let Some((until, at_the_latest)) = runs.0.hand_over(in_time) else { return };
        in_time = tokio::select! {
            biased;
            () = until.notified() => true,
            () = sleep_until(at_the_latest.unwrap_or_else(Instant::now)), if at_the_latest.is_some() => false,
        };
    }
}
