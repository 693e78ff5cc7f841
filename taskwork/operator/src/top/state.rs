//! The displayed cluster and the user's choices: changes by events and commands, independent of the terminal.

use taskwork::view::{Content, Event, JobNow, Snapshot, Stage, View};

use super::{
    jobs::{Chooser, jobs},
    keys::{Command, Focus, Step},
    rates::NodeRates,
    rows::{Order, Row, Standing, rows},
};

/// The maximum length of a filter, in characters.
const FILTER_CHARS_MAX: usize = 60;
/// The time for which a message is displayed, in milliseconds.
const MESSAGE_MS: u64 = 15_000;

/// The origin of the displayed state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Source {
    /// A live cluster, by its path.
    Cluster(String),
    /// A record, by the name of its file; it does not change.
    Record(String),
}

/// The choice of the displayed job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Shown {
    /// The running job; if there is none, the last one displayed.
    Running,
    /// The job of this id.
    One(String),
}

/// The box above the picture, which determines the meaning of keys.
#[derive(Debug, Default)]
pub(super) enum Mode {
    #[default]
    Nodes,
    /// A filter is typed. Cancelling it restores the previous filter.
    Filter {
        before: String,
    },
    Jobs(Chooser),
    /// A confirmation that a node should leave.
    Question(Leave),
    Help,
}

/// A request to leave. It is fixed when the question is asked, and does not change with the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Leave {
    pub(super) node: String,
    /// Whether the node was asked before: then it leaves at once. Otherwise it is not asked a second time.
    pub(super) again: bool,
}

/// The effect of a command outside of the state.
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
    /// The id of the displayed job.
    job: Option<String>,
    rates: NodeRates,
    pub(super) rows: Vec<Row>,
    pub(super) order: Order,
    pub(super) filter: String,
    /// The name of the selected node.
    selected: Option<String>,
    /// The range of displayed nodes.
    pub(super) window: Window,
    pub(super) mode: Mode,
    /// The end of the time for which the message is displayed, and its text.
    message: Option<(u64, String)>,
    /// The reason for waiting, until there is a cluster to show.
    waits: Option<String>,
}

/// The displayed range of a list.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Window {
    pub(super) first: usize,
    pub(super) height: usize,
}

impl Window {
    /// Sets the height, and scrolls so that an entry is visible.
    pub(super) fn show(&mut self, selected: usize, entries: usize, height: usize) {
        self.height = height;
        let last_first = entries.saturating_sub(height);
        let least = (selected + 1).saturating_sub(height);
        self.first = self.first.clamp(least.min(selected), selected.max(least)).min(last_first);
    }

    /// Returns the index after a step.
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

    /// Applies an event. The picture changes only with ticks.
    pub(super) fn take(&mut self, event: &Event) {
        self.view.apply(event);
        match event.content {
            Content::Found => self.is_whole = true,
            Content::Tick => self.refresh(),
            _ => {}
        }
    }

    /// Applies the changes since the last tick.
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

    /// Selects the displayed job.
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

    /// Sorts and filters the nodes.
    fn arrange(&mut self) {
        self.rows = rows(&self.snapshot, self.job.as_deref(), &self.rates, self.order, &self.filter);
    }

    /// Returns the time by the observer's clock, in milliseconds since 1970; for a record, the time of its end.
    pub(super) fn now_ms(&self) -> u64 {
        self.snapshot.cluster.at_ms
    }

    /// Returns the id of the displayed job, and the job if it exists.
    pub(super) fn job(&self) -> Option<(&str, Option<&JobNow>)> {
        let id = self.job.as_deref()?;
        Some((id, self.snapshot.jobs.get(id)))
    }

    /// Returns the index of the selected node.
    pub(super) fn selected(&self) -> usize {
        let selected = self.selected.as_deref();
        let known = self.rows.iter().position(|row| Some(row.name.as_str()) == selected);
        // Without a selection, or if the selected node has gone, the first visible one.
        known.unwrap_or(self.window.first).min(self.rows.len().saturating_sub(1))
    }

    /// Returns a message to the user, if there is one.
    pub(super) fn message(&self) -> Option<&str> {
        let (until_ms, text) = self.message.as_ref()?;
        (self.now_ms() <= *until_ms).then_some(text.as_str())
    }

    /// Displays a message.
    pub(super) fn tell(&mut self, text: String) {
        self.message = Some((self.now_ms().saturating_add(MESSAGE_MS), text));
    }

    /// Starts to wait for a cluster.
    pub(super) fn begin_to_wait(&mut self, why: String) {
        self.waits = Some(why);
    }

    /// Returns the reason for waiting.
    pub(super) fn waits(&self) -> Option<&str> {
        self.waits.as_deref()
    }

    /// Returns the element that receives the keys.
    pub(super) fn focus(&self) -> Focus {
        match self.mode {
            Mode::Nodes => Focus::Nodes,
            Mode::Filter { .. } => Focus::Filter,
            Mode::Jobs(_) => Focus::Jobs,
            Mode::Question(_) => Focus::Question,
            Mode::Help => Focus::Help,
        }
    }

    /// Performs a command.
    pub(super) fn perform(&mut self, command: Command) -> Effect {
        // A redraw keeps the message.
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

    /// Asks for a confirmation that the selected node should leave.
    fn ask(&mut self) {
        let row = self.rows.get(self.selected());
        let refused = match (&self.source, row) {
            (Source::Record(_), _) => "this is a record: its nodes cannot be asked to leave".to_owned(),
            (_, None) => "no node is selected".to_owned(),
            (_, Some(row)) if !row.state.is_member() => format!("{} has already gone", row.name),
            (_, Some(row)) => {
                // The selection stays on this node even if the list changes.
                self.selected = Some(row.name.clone());
                let again = row.state == Standing::Leaving;
                self.mode = Mode::Question(Leave { node: row.name.clone(), again });
                return;
            }
        };
        self.tell(refused);
    }

    /// Edits the typed text.
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

    /// Closes the box and returns to the list of nodes.
    fn end_mode(&mut self, is_accepted: bool) -> Effect {
        match std::mem::take(&mut self.mode) {
            Mode::Filter { before } if !is_accepted => {
                self.filter = before;
                self.arrange();
            }
            Mode::Jobs(chooser) if is_accepted => {
                // A filter that matches no job changes nothing.
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
