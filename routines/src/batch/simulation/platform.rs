//! Virtual time, runtimes and segments.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet, VecDeque},
    io,
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant},
};

use rand::{Rng as _, SeedableRng as _, rngs::SmallRng};
use serde_json::value::RawValue;

use super::super::{
    combine::Partials,
    platform::{CallRuntime, Platform},
};
use crate::{
    ranges::Ranges,
    resource::Files,
    runtime::{Event, Installed, Request},
    store::Outcome,
    usage::Consumption,
    wire::{Exchange, FrameError, FromRuntime, Step},
};

/// The maximum number of results that a node has not written.
const UNWRITTEN_MAX: usize = 20;

pub(super) type Shared = Rc<RefCell<World>>;

/// The time, the calls and the written results.
#[derive(Debug)]
pub(super) struct World {
    pub(super) random: SmallRng,
    start: Instant,
    pub(super) now_ms: u64,
    /// The number of steps of each call. Calls with an even index have states.
    work: Vec<u64>,
    /// Whether the only faults are nodes that leave.
    pub(super) is_gentle: bool,
    /// The number of times that each step of a call with states has run.
    pub(super) steps: BTreeMap<(u64, u64), u32>,
    pub(super) durable: BTreeSet<u64>,
    /// The segments of replaced nodes, which may be written late.
    pub(super) late: Vec<Rc<Segments>>,
    /// The numbers of events, for the check that the simulation has them.
    pub(super) events: BTreeMap<&'static str, u64>,
    /// A violation in a runtime.
    pub(super) broken: Option<String>,
}

impl World {
    pub(super) fn new(seed: u64) -> Shared {
        let mut random = SmallRng::seed_from_u64(seed);
        let calls = random.random_range(1..12);
        let work = (0..calls).map(|_| 1 << random.random_range(0..7)).collect();
        Rc::new(RefCell::new(Self {
            random,
            start: Instant::now(),
            now_ms: 0,
            work,
            is_gentle: seed.is_multiple_of(4),
            steps: BTreeMap::new(),
            durable: BTreeSet::new(),
            late: Vec::new(),
            events: BTreeMap::new(),
            broken: None,
        }))
    }

    pub(super) fn calls(&self) -> u64 {
        self.work.len() as u64
    }

    /// Lets time pass.
    pub(super) fn pass(&mut self) {
        self.now_ms += self.random.random_range(0..8);
        if !self.late.is_empty() && self.random.random_range(0..100) == 0 {
            let late = self.late.swap_remove(0);
            let unwritten = late.unwritten.take();
            self.durable.extend(&unwritten);
            self.count("late segment", !unwritten.is_empty());
        }
    }

    fn count(&mut self, event: &'static str, happens: bool) -> bool {
        *self.events.entry(event).or_default() += u64::from(happens);
        happens
    }

    /// Decides whether a fault happens, in one of so many cases.
    fn fault(&mut self, event: &'static str, of: u32) -> bool {
        let happens = !self.is_gentle && self.random.random_range(0..of) == 0;
        self.count(event, happens)
    }
}

/// The unwritten results of a node.
#[derive(Debug)]
pub(super) struct Segments {
    world: Shared,
    unwritten: RefCell<Vec<u64>>,
    last: Cell<u64>,
    durable: Cell<u64>,
}

impl Segments {
    pub(super) fn new(world: &Shared) -> Rc<Self> {
        let (unwritten, last, durable) = Default::default();
        Rc::new(Self { world: Rc::clone(world), unwritten, last, durable })
    }

    pub(super) fn sync(&self) {
        self.world.borrow_mut().durable.extend(self.unwritten.take());
        self.durable.set(self.last.get());
    }

    pub(super) fn lose(&self) {
        self.unwritten.take();
    }
}

#[derive(Debug)]
pub(crate) struct Virtual {
    world: Shared,
    installed: Arc<Installed>,
    segments: Rc<Segments>,
}

impl Virtual {
    pub(super) fn new(world: Shared, installed: Arc<Installed>, segments: Rc<Segments>) -> Self {
        Self { world, installed, segments }
    }
}

impl Platform for Virtual {
    type Runtime = VirtualRuntime;

    fn now(&self) -> Instant {
        let world = self.world.borrow();
        world.start + Duration::from_millis(world.now_ms)
    }

    fn pause(&self, _: Duration) {}

    fn partials(&self) -> Option<&Partials> {
        None
    }

    fn cancelled(&self) -> io::Result<Ranges> {
        Ok(Ranges::default())
    }

    fn installed(&self) -> &Installed {
        &self.installed
    }

    fn files(&self) -> Option<Files<'_>> {
        None
    }

    fn start(&self) -> Result<VirtualRuntime, String> {
        let (world, at_ms) = (Rc::clone(&self.world), self.world.borrow().now_ms + 20);
        let (request, frame) = (Cell::new(None), VecDeque::new());
        let exchange = Exchange::new();
        Ok(VirtualRuntime { world, exchange, request, frame, step: 0, at_ms, calls: 0, is_hung: false })
    }

    fn keep(&self, _: VirtualRuntime) {}

    fn has_used_up(&self, _: &VirtualRuntime) -> bool {
        self.world.borrow_mut().random.random_range(0..10) == 0
    }

    fn has_room(&self) -> bool {
        self.segments.unwritten.borrow().len() < UNWRITTEN_MAX
    }

    fn put(&self, results: &[(u64, Outcome)]) -> u64 {
        let Segments { unwritten, last, .. } = &*self.segments;
        unwritten.borrow_mut().extend(results.iter().map(|(index, _)| index));
        last.set(last.get() + results.len() as u64);
        last.get()
    }

    fn durable(&self) -> u64 {
        self.segments.durable.get()
    }

    fn hurry(&self) {}

    fn wait(&self, _: u64, _: Duration) {
        let is_done = self.world.borrow_mut().random.random_range(0..4) == 0;
        if is_done {
            self.segments.sync();
        }
    }
}

/// A process that makes calls of many steps, and sends states between them.
#[derive(Debug)]
pub(crate) struct VirtualRuntime {
    world: Shared,
    exchange: Exchange,
    request: Cell<Option<Request>>,
    /// The calls without an answer.
    frame: VecDeque<u64>,
    /// The next step of the first call, and its end.
    step: u64,
    at_ms: u64,
    calls: u64,
    is_hung: bool,
}

impl VirtualRuntime {
    /// Sends a message. Returns whether it was accepted.
    fn send(&mut self, message: FromRuntime, events: &mut Vec<Event>) -> bool {
        match self.exchange.on_message(message) {
            Ok(Step::Nothing) => {}
            Ok(step) => events.push(Event::Step(step)),
            Err(error) => {
                events.push(Event::Broken(error.to_string()));
                return false;
            }
        }
        true
    }

    /// Completes a step of the first call. Returns whether the runtime continues.
    fn advance(&mut self, call: u64, events: &mut Vec<Event>) -> bool {
        let has_states = call.is_multiple_of(2);
        let is_last = self.step + 1 >= self.world.borrow().work[usize::try_from(call).unwrap()];
        if self.world.borrow_mut().fault("crash", 60) {
            events.push(Event::Broken("it has crashed".to_owned()));
            return false;
        }
        if self.world.borrow_mut().fault("hang", 400) {
            self.is_hung = true;
            return false;
        }
        if has_states {
            *self.world.borrow_mut().steps.entry((call, self.step)).or_default() += 1;
        }
        self.step += 1;
        if is_last {
            return self.answer(call, events);
        }
        let is_requested = self.request.get().is_some() || !self.exchange.has_checkpoints();
        if !has_states || !is_requested {
            return true;
        }
        let state = [call.to_le_bytes(), self.step.to_le_bytes()].concat();
        self.world.borrow_mut().count("state", true);
        let is_sent = self.send(FromRuntime::Checkpoint { id: call, state }, events);
        if self.request.get() == Some(Request::Pause) {
            self.world.borrow_mut().count("stop", true);
            self.frame.clear();
            return self.send(FromRuntime::Stopped, events);
        }
        self.request.set(None);
        is_sent
    }

    fn answer(&mut self, call: u64, events: &mut Vec<Event>) -> bool {
        let result = || {
            let value = RawValue::from_string(call.to_string()).unwrap();
            FromRuntime::Result { values: vec![(call, value)] }
        };
        self.frame.pop_front();
        self.step = 0;
        let is_repeated = self.world.borrow_mut().fault("second answer", 10);
        self.send(result(), events) && (!is_repeated || self.send(result(), events))
    }
}

impl CallRuntime for VirtualRuntime {
    fn exchange(&self) -> &Exchange {
        &self.exchange
    }

    fn calls(&self) -> u64 {
        self.calls
    }

    fn consumption(&self) -> Consumption {
        Consumption { user_us: self.calls, ..Consumption::default() }
    }

    fn call(&mut self, calls: &[(u64, Box<RawValue>)], state: Option<&[u8]>) -> Result<(), FrameError> {
        let mut ids = Ranges::default();
        for (id, _) in calls {
            ids.insert(*id..*id + 1);
        }
        self.frame = calls.iter().map(|(id, _)| *id).collect();
        self.exchange.on_calls(ids);
        self.calls += calls.len() as u64;
        self.request.set(None);
        let mut world = self.world.borrow_mut();
        (self.step, self.at_ms) = (0, world.now_ms);
        if let Some(state) = state {
            let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap());
            let of = number(&state[..8]);
            self.step = number(&state[8..]);
            world.count("continued", true);
            if self.frame != [of] || !world.steps.contains_key(&(of, self.step - 1)) {
                world.broken = Some(format!("calls {:?} continue from {:?}", self.frame, (of, self.step)));
            }
        }
        Ok(())
    }

    fn request(&self, request: Request) {
        self.request.set(Some(request));
    }

    fn poll(&mut self, _: Duration) -> Vec<Event> {
        let (mut events, now_ms) = (Vec::new(), self.world.borrow().now_ms);
        if !self.exchange.is_loaded() && now_ms >= self.at_ms {
            for version in [Some(1), None] {
                self.send(FromRuntime::Ready { version }, &mut events);
            }
        }
        while let Some(&call) = self.frame.front() {
            if now_ms <= self.at_ms || self.is_hung {
                break;
            }
            self.at_ms += 1 + call % 7;
            if !self.advance(call, &mut events) {
                break;
            }
        }
        events
    }

    fn late_load(&self) -> Option<String> {
        None
    }

    fn exceeded(&self, limit: Duration) -> String {
        format!("it exceeded {limit:?}")
    }
}
