//! A simulated workflow, executed sequentially on plain values.

use super::{
    super::shapes::mix,
    Recipe, Step,
    tasks::numbers::{added, both, flaky, gathered, panics, parts, summed, tried, tried_or_not},
};

/// A value; `None` if its call, or a call on which it depends, has failed.
type Number = Option<u64>;

/// Returns the reads of a program in order.
pub(super) fn run(recipe: &Recipe) -> Vec<Number> {
    let mut state = State { variables: (0..).take(recipe.variables).map(Some).collect(), read: Vec::new() };
    for step in &recipe.steps {
        state.step(step);
    }
    for variable in 0..recipe.variables {
        state.read(variable);
    }
    state.read
}

struct State {
    variables: Vec<Number>,
    read: Vec<Number>,
}

impl State {
    fn step(&mut self, step: &Step) {
        match step {
            Step::Bring { to, seed, .. } => self.variables[*to] = Some(*seed),
            Step::Make { to, seed, .. } => {
                let last = self.read.last().map_or(0, |read| read.unwrap_or(u64::MAX));
                self.variables[*to] = Some(mix(last, *seed));
            }
            Step::Add { on, by, .. } => self.add(*on, *by),
            Step::Both { to, of: [first, second] } => {
                let pair = self.variables[*first].zip(self.variables[*second]);
                self.variables[*to] = pair.map(|(first, second)| both(first, second));
            }
            Step::Gather { to, of } => {
                let all: Option<Vec<_>> = of.iter().map(|of| self.variables[*of]).collect();
                self.variables[*to] = all.map(|all| gathered(all.into_iter()));
            }
            Step::Parts { of, to: [first, second] } => {
                let made = self.variables[*of].map(parts);
                self.variables[*first] = made.map(|[one, _]| one);
                self.variables[*second] = made.map(|[_, other]| other);
            }
            Step::Copy { of, to } => self.variables[*to] = self.variables[*of],
            Step::Reduce { to, of } => {
                self.variables[*to] = reduced(of.iter().map(|of| self.variables[*of]).collect());
            }
            Step::Sum { to, of } => {
                let all: Option<Vec<_>> = of.iter().map(|of| self.variables[*of]).collect();
                self.variables[*to] = all.map(|all| summed(all.into_iter()));
            }
            Step::Try { on } => self.variables[*on] = self.variables[*on].and_then(tried),
            Step::TryOrNot { on, to } => {
                let before = self.variables[*on];
                // A failed call leaves the variable unchanged, and creates a default.
                let made = before.map(|number| tried_or_not(number).unwrap_or([number, 0]));
                self.variables[*on] = made.map(|[updated, _]| updated);
                self.variables[*to] = made.map(|[_, made]| made);
            }
            Step::Flaky { of, to } => self.variables[*to] = self.variables[*of].map(flaky),
            Step::Panic { of, to } => self.variables[*to] = self.variables[*of].and_then(panics),
            Step::Read { of } => self.read(*of),
            Step::Change { on, by } => {
                self.read(*on);
                self.variables[*on] = self.variables[*on].map(|number| mix(number, *by));
            }
            Step::Group { on } => on.iter().for_each(|on| self.add(*on, 0)),
            Step::Pause { .. } | Step::Barrier | Step::Cancelled { .. } => {}
        }
    }

    fn add(&mut self, on: usize, by: usize) {
        let pair = self.variables[on].zip(self.variables[by]);
        self.variables[on] = pair.map(|(sum, other)| added(sum, other));
    }

    fn read(&mut self, of: usize) {
        self.read.push(self.variables[of]);
    }
}

/// Merges neighbours, then neighbours of the results, and so on.
fn reduced(mut parts: Vec<Number>) -> Number {
    while parts.len() > 1 {
        let merge = |pair: &[Number]| match pair {
            [first, second] => first.zip(*second).map(|(first, second)| added(first, second)),
            rest => rest.first().copied().flatten(),
        };
        parts = parts.chunks(2).map(merge).collect();
    }
    parts.first().copied().flatten()
}
