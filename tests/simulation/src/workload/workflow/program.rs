//! A simulated workflow as a program of the framework.

use std::{error::Error, time::Duration};

use dataflow_framework::{Data, Failure, Program, TaskDef, barrier, commute, group, reduce, tasks};

use super::{
    super::{Shape, shapes::mix},
    Step,
    tasks::{
        Item, add, attempt, attempt_or_not, both, endless, endless_future, flaky, gather, make, panics,
        parts, sum,
    },
};
use crate::world::{pause, show_read};

#[derive(Debug)]
pub(crate) struct Flow;

/// The number that represents a value that cannot be read, because a call has failed.
const FAILED: u64 = u64::MAX;

/// The failure of a program that fails.
pub(crate) const FAILURE: &str = "it fails at its end";

impl Program for Flow {
    type Arguments = Shape;
    type Output = Vec<Option<u64>>;

    fn tasks() -> Vec<&'static TaskDef> {
        let ending = tasks![make, add, sum, both, gather, parts, attempt, attempt_or_not, flaky, panics];
        [&ending[..], &tasks![endless, endless_future]].concat()
    }

    fn run(shape: &Shape) -> Result<Vec<Option<u64>>, Box<dyn Error + Send + Sync>> {
        let Shape::Workflow(recipe) = shape else { return Err("the job is not a workflow".into()) };
        let variables = (0..).take(recipe.variables).map(|number| make(number, 16)).collect();
        let mut state = State { variables, expected: recipe.expected(), read: Vec::new(), last: 0 };
        for step in &recipe.steps {
            state.step(step);
        }
        for variable in 0..recipe.variables {
            state.read(variable);
        }
        // Failures are reported by the reads, or by this barrier.
        let _ = barrier();
        if recipe.fails { Err(FAILURE.into()) } else { Ok(state.read) }
    }
}

struct State {
    variables: Vec<Data<Item>>,
    /// The expected reads, in order.
    expected: Vec<Option<u64>>,
    read: Vec<Option<u64>>,
    last: u64,
}

impl State {
    fn step(&mut self, step: &Step) {
        match step {
            Step::Bring { to, seed, bytes } => self.variables[*to] = Data::new(Item::new(*seed, *bytes)),
            Step::Make { to, seed, bytes } => self.variables[*to] = make(mix(self.last, *seed), *bytes),
            Step::Add { on, by, priority } => {
                let by = self.variables[*by].clone();
                add::with().priority(*priority).call(&mut self.variables[*on], &by);
            }
            Step::Both { to, of: [first, second] } => {
                self.variables[*to] = both(&self.variables[*first], &self.variables[*second]);
            }
            Step::Gather { to, of } => self.variables[*to] = gather(&self.some(of)),
            Step::Parts { of, to: [first, second] } => {
                let (one, other) = parts(&self.variables[*of]);
                self.variables[*first] = one;
                self.variables[*second] = other;
            }
            Step::Copy { of, to } => self.variables[*to] = self.variables[*of].clone(),
            Step::Reduce { to, of } => {
                self.variables[*to] = reduce(self.some(of), add).expect("there are some");
            }
            Step::Sum { to, of } if of.len() % 2 == 0 => {
                self.variables[*to] = reduce(self.some(of), sum).any_order().expect("there are some");
            }
            Step::Sum { to, of } => {
                let mut all = Data::new(Item::default());
                for item in self.some(of) {
                    sum(commute(&mut all), &item);
                }
                self.variables[*to] = all;
            }
            Step::Try { on } => attempt(&mut self.variables[*on]),
            Step::TryOrNot { on, to } => {
                let made = attempt_or_not(&mut self.variables[*on]);
                self.variables[*to] = made;
            }
            Step::Flaky { of, to } => self.variables[*to] = flaky(&self.variables[*of]),
            Step::Panic { of, to } => self.variables[*to] = panics(&self.variables[*of]),
            Step::Read { of } => self.read(*of),
            Step::Change { on, by } => self.change(*on, *by),
            Step::Pause { ms } => pause(Duration::from_millis(*ms)),
            // Failures are reported by the reads.
            Step::Barrier => drop(barrier()),
            Step::Cancelled { seed, calls } => cancelled(*seed, *calls),
            Step::Group { on } => {
                let (calls, ()) = group(|| on.iter().for_each(|on| self.add_first(*on)));
                drop(calls.wait());
            }
        }
    }

    fn some(&self, of: &[usize]) -> Vec<Data<Item>> {
        of.iter().map(|of| self.variables[*of].clone()).collect()
    }

    fn add_first(&mut self, on: usize) {
        let first = self.variables[0].clone();
        add(&mut self.variables[on], &first);
    }

    fn read(&mut self, of: usize) {
        let read = self.variables[of].get().map(|item| item.number);
        self.note(&read);
    }

    fn change(&mut self, on: usize, by: u64) {
        let read = self.variables[on].get_mut().map(|mut item| {
            let before = item.number;
            item.number = mix(before, by);
            before
        });
        self.note(&read);
    }

    /// Records a read, and reports it to the world.
    fn note(&mut self, read: &Result<u64, Failure>) {
        let read = read.as_ref().ok().copied();
        self.last = read.unwrap_or(FAILED);
        let number = self.read.len();
        let expected = self.expected.get(number).copied().flatten().unwrap_or(FAILED);
        show_read(number as u64, expected, self.last);
        self.read.push(read);
    }
}

/// Makes a chain of calls, and sometimes calls that never end by themselves, and cancels them: their results are never read.
fn cancelled(seed: u64, calls: usize) {
    let (chain, last) = group(|| {
        if seed.is_multiple_of(2) {
            drop(endless());
        }
        if seed.is_multiple_of(3) {
            drop(endless_future());
        }
        // Some of them have started by then.
        pause(Duration::from_millis(seed % 5 * 20));
        let mut last = make(seed, 8);
        for _ in 1..calls {
            let before = last.clone();
            add(&mut last, &before);
        }
        last
    });
    chain.cancel();
    let _ = chain.wait();
    drop(last);
}
