//! What is shown, and what a user has chosen: it changes by events of the cluster and by commands, and knows nothing
//! of terminals.

use taskwork::view::{Content, Event, JobNow, Snapshot, Stage, View};

use super::{
    jobs::{Chooser, jobs},
    keys::{Command, Focus, Step},
    rates::NodeRates,
    rows::{Order, Row, Standing, rows},
};

/// The most characters that a filter may have.
const FILTER_CHARS_MAX: usize = 60;
/// The time for which a message is shown, in milliseconds.
const MESSAGE_MS: u64 = 15_000;

/// Where what is shown comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Source {
    /// A cluster that is observed, by its path.
    Cluster(String),
    /// A record, by the name of its file: nothing in it changes.
    Record(String),
}

/// Which job is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Shown {
    /// The one that runs; if none does, the one that was shown last.
    Running,
    /// The one of this id.
    One(String),
}

/// What is shown above all else, and what keys mean.
#[derive(Debug, Default)]
pub(super) enum Mode {
    #[default]
    Nodes,
    /// A filter is typed. What it was before comes back if that is ended.
    Filter {
        before: String,
    },
    Jobs(Chooser),
    /// Whether a node is to be asked to leave.
    Question(Leave),
    Help,
}

/// A node that is to be asked to leave. What the question was is what the answer is for, whatever happens meanwhile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Leave {
    pub(super) node: String,
    /// Whether it was asked before, as is seen: then it leaves at once. Otherwise it is not asked a second time.
    pub(super) again: bool,
}

/// What a command leads to outside of what is shown.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum Effect {
    None,
    Quit,
    Suspend,
    Redraw,
    /// Ask a node to leave.
    Drain(Leave),
}

/// A cluster on a terminal.
#[derive(Debug)]
pub(super) struct State {
    pub(super) source: Source,
    view: View,
    pub(super) snapshot: Snapshot,
    /// Whether everything was read once.
    pub(super) is_whole: bool,
    pub(super) shown: Shown,
    /// The id of the job that is shown.
    job: Option<String>,
    rates: NodeRates,
    pub(super) rows: Vec<Row>,
    pub(super) order: Order,
    pub(super) filter: String,
    /// The name of the selected node.
    selected: Option<String>,
    /// The first node that is drawn, and the number of those that are.
    pub(super) window: Window,
    pub(super) mode: Mode,
    /// Until when it is shown, and what it says.
    message: Option<(u64, String)>,
    /// What is waited for until there is anything to show.
    waits: Option<String>,
}

/// The part of a list that is drawn.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Window {
    pub(super) first: usize,
    pub(super) height: usize,
}

impl Window {
    /// Makes the window so high, and moves it so that an entry is in it.
    pub(super) fn show(&mut self, selected: usize, entries: usize, height: usize) {
        self.height = height;
        let last_first = entries.saturating_sub(height);
        let least = (selected + 1).saturating_sub(height);
        self.first = self.first.clamp(least.min(selected), selected.max(least)).min(last_first);
    }

    /// Returns where a step leads.
    pub(super) fn step(self, from: usize, step: Step, entries: usize) -> usize {
        let page = self.height.max(1);
        let to = match step {
            Step::Up => from.saturating_sub(1),
            Step::Down => from + 1,
            Step::PageUp => from.saturating_sub(page),
            Step::PageDown => from + page,
            Step::First => 0,
            Step::Last => usize::MAX,
        };
        to.min(entries.saturating_sub(1))
    }
}

impl State {
    pub(super) fn new(source: Source, shown: Shown) -> Self {
        let view = View::default();
        let snapshot = view.snapshot();
        Self {
            source,
            view,
            snapshot,
            is_whole: false,
            shown,
            job: None,
            rates: NodeRates::default(),
            rows: Vec::new(),
            order: Order::default(),
            filter: String::new(),
            selected: None,
            window: Window::default(),
            mode: Mode::default(),
            message: None,
            waits: None,
        }
    }

    /// Takes what was seen. What is shown changes only if it was a tick.
    pub(super) fn take(&mut self, event: &Event) {
        self.view.apply(event);
        match event.content {
            Content::Found => self.is_whole = true,
            Content::Tick => self.refresh(),
            _ => {}
        }
    }

    /// Shows what has changed since the last tick.
    fn refresh(&mut self) {
        match self.view.delta_since(self.snapshot.seq) {
            Some(delta) => self.snapshot.apply(delta),
            None => self.snapshot = self.view.snapshot(),
        }
        if !self.snapshot.members.is_empty() || !self.snapshot.jobs.is_empty() {
            self.waits = None;
        }
        self.choose_job();
        if let Some(job) = self.job.as_ref().and_then(|id| self.snapshot.jobs.get(id)) {
            self.rates.take(job);
        }
        self.arrange();
    }

    /// Finds out which job is shown.
    fn choose_job(&mut self) {
        let jobs = &self.snapshot.jobs;
        let before = self.job.take();
        self.job = match &self.shown {
            Shown::One(id) => Some(id.clone()),
            Shown::Running => {
                let is_running =
                    |id: &String| jobs.get(id).is_some_and(|job| job.about.stage == Stage::Running);
                let there = before.clone().filter(|id| jobs.contains_key(id));
                let first = || jobs.keys().find(|id| is_running(id)).cloned();
                let open =
                    || jobs.iter().find(|(_, job)| job.about.stage.is_open()).map(|(id, _)| id.clone());
                let last = || jobs.last_key_value().map(|(id, _)| id.clone());
                let running = there.clone().filter(is_running).or_else(first);
                running.or(there).or_else(open).or_else(last)
            }
        };
        if self.job != before {
            self.rates = NodeRates::default();
        }
    }

    /// Puts the nodes in order.
    fn arrange(&mut self) {
        self.rows = rows(&self.snapshot, self.job.as_deref(), &self.rates, self.order, &self.filter);
    }

    /// Returns the time, in milliseconds since 1970 by the observer's clock; in a record, that of its end.
    pub(super) fn now_ms(&self) -> u64 {
        self.snapshot.cluster.at_ms
    }

    /// Returns the id of the job that is shown, and the job if there is one of this id.
    pub(super) fn job(&self) -> Option<(&str, Option<&JobNow>)> {
        let id = self.job.as_deref()?;
        Some((id, self.snapshot.jobs.get(id)))
    }

    /// Returns the place of the selected node.
    pub(super) fn selected(&self) -> usize {
        let selected = self.selected.as_deref();
        let known = self.rows.iter().position(|row| Some(row.name.as_str()) == selected);
        // Without a selection, or if that is gone, it is the first that is seen.
        known.unwrap_or(self.window.first).min(self.rows.len().saturating_sub(1))
    }

    /// Returns a message to the user, if there is one.
    pub(super) fn message(&self) -> Option<&str> {
        let (until_ms, text) = self.message.as_ref()?;
        (self.now_ms() <= *until_ms).then_some(text.as_str())
    }

    /// Tells the user something.
    pub(super) fn tell(&mut self, text: String) {
        self.message = Some((self.now_ms().saturating_add(MESSAGE_MS), text));
    }

    /// Begins to wait for something that is not there yet, such as the cluster.
    pub(super) fn begin_to_wait(&mut self, why: String) {
        self.waits = Some(why);
    }

    /// Returns what is waited for.
    pub(super) fn waits(&self) -> Option<&str> {
        self.waits.as_deref()
    }

    /// Returns what keys mean.
    pub(super) fn focus(&self) -> Focus {
        match self.mode {
            Mode::Nodes => Focus::Nodes,
            Mode::Filter { .. } => Focus::Filter,
            Mode::Jobs(_) => Focus::Jobs,
            Mode::Question(_) => Focus::Question,
            Mode::Help => Focus::Help,
        }
    }

    /// Does what a user asks for.
    pub(super) fn perform(&mut self, command: Command) -> Effect {
        // What is drawn anew is the same, its message included.
        if command != Command::Redraw {
            self.message = None;
        }
        match command {
            Command::Quit => return Effect::Quit,
            Command::Suspend => return Effect::Suspend,
            Command::Redraw => return Effect::Redraw,
            Command::Help => self.mode = Mode::Help,
            Command::Jobs => self.mode = Mode::Jobs(Chooser::at(self.job.clone())),
            Command::Filter => self.mode = Mode::Filter { before: self.filter.clone() },
            Command::Sort => {
                self.order = self.order.next();
                self.arrange();
            }
            Command::Drain => self.ask(),
            Command::Move(step) => self.step(step),
            Command::Type(_) | Command::Erase | Command::Clear => self.edit(command),
            Command::Accept | Command::Back => return self.end_mode(command == Command::Accept),
        }
        Effect::None
    }

    fn step(&mut self, step: Step) {
        if let Mode::Jobs(chooser) = &mut self.mode {
            chooser.step(step, &self.snapshot);
            return;
        }
        let to = self.window.step(self.selected(), step, self.rows.len());
        self.selected = self.rows.get(to).map(|row| row.name.clone());
    }

    /// Asks whether the selected node is to leave.
    fn ask(&mut self) {
        let row = self.rows.get(self.selected());
        let refused = match (&self.source, row) {
            (Source::Record(_), _) => "this is a record: nothing in it can be asked to leave".to_owned(),
            (_, None) => "no node is selected".to_owned(),
            (_, Some(row)) if !row.state.is_member() => format!("{} is gone already", row.name),
            (_, Some(row)) => {
                // Which node it is about does not change any more, whatever happens to the list.
                self.selected = Some(row.name.clone());
                let again = row.state == Standing::Leaving;
                self.mode = Mode::Question(Leave { node: row.name.clone(), again });
                return;
            }
        };
        self.tell(refused);
    }

    /// Changes what is typed.
    fn edit(&mut self, command: Command) {
        let text = match &mut self.mode {
            Mode::Filter { .. } => &mut self.filter,
            Mode::Jobs(chooser) => &mut chooser.filter,
            Mode::Nodes | Mode::Question(_) | Mode::Help => return,
        };
        match command {
            Command::Type(c) if !c.is_control() && text.chars().count() < FILTER_CHARS_MAX => text.push(c),
            Command::Erase => {
                text.pop();
            }
            Command::Clear => text.clear(),
            _ => {}
        }
        if matches!(self.mode, Mode::Filter { .. }) {
            self.arrange();
        }
    }

    /// Returns to the nodes.
    fn end_mode(&mut self, is_accepted: bool) -> Effect {
        match std::mem::take(&mut self.mode) {
            Mode::Filter { before } if !is_accepted => {
                self.filter = before;
                self.arrange();
            }
            Mode::Jobs(chooser) if is_accepted => {
                // A filter that fits no job changes nothing.
                if let Some(shown) = jobs(&self.snapshot, &chooser.filter).get(chooser.place(&self.snapshot))
                {
                    self.shown = shown.map_or(Shown::Running, |id| Shown::One(id.to_owned()));
                }
                self.choose_job();
                self.arrange();
            }
            Mode::Question(leave) if is_accepted => {
                self.tell(format!("{} is being asked to leave", leave.node));
                return Effect::Drain(leave);
            }
            Mode::Nodes | Mode::Help | Mode::Filter { .. } | Mode::Jobs(_) => {}
            Mode::Question(leave) => self.tell(format!("{} was not asked to leave", leave.node)),
        }
        Effect::None
    }
}
