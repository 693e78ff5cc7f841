//! Tasks made from methods and from external functions.

use serde::{Deserialize, Serialize};

use crate::{Data, Failure, Workflow, task, tasks};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Account {
    cents: u64,
}

#[task]
impl Account {
    /// Opens an account.
    #[task]
    fn open(cents: u64) -> Self {
        Self { cents }
    }

    /// Deposits an amount.
    #[task]
    fn pay_in(&mut self, cents: u64) {
        self.cents += cents;
    }

    /// Adds the balance of another account.
    #[task(retry = 2, priority = 3)]
    fn take_over(&mut self, other: &Self) -> Result<u64, String> {
        self.cents = self.sum(other.cents)?;
        Ok(self.cents)
    }

    #[task]
    fn balance(&self) -> u64 {
        self.cents
    }

    /// Not a task.
    fn sum(&self, cents: u64) -> Result<u64, String> {
        self.cents.checked_add(cents).ok_or_else(|| "it is too much".to_owned())
    }
}

/// A library without tasks.
mod linear {
    pub(super) fn scale(vector: &mut [f64], by: f64) {
        for x in vector {
            *x *= by;
        }
    }

    pub(super) fn sum(vector: &[f64]) -> Result<f64, String> {
        if vector.is_empty() { Err("it is empty".to_owned()) } else { Ok(vector.iter().sum()) }
    }
}

tasks! {
    /// Scales a vector.
    fn scale(vector: &mut Vec<f64>, by: f64) = linear::scale;
    fn sum(vector: &Vec<f64>) -> Result<f64, String> = linear::sum { retry = 3 };
}

#[test]
fn methods_as_tasks_are_called_on_handles() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let table = || tasks![account_open, account_pay_in, account_take_over, account_balance];
    let program = || {
        let (mut one, other) = (account_open(100), account_open(5));
        one.pay_in(20);
        let before = one.clone();
        let total = one.take_over(&other);
        Ok::<_, Failure>((*total.get()?, *before.balance().get()?, one.get()?.clone()))
    };
    for workflow in [Workflow::new(table())?.sequential(), Workflow::new(table())?.workers(3)] {
        assert_eq!(workflow.run(program)?, (125, 120, Account { cents: 125 }));
    }
    let options = account_take_over::TASK.options;
    assert_eq!((options.retry, options.priority), (2, 3));
    let mut plain = Account::open(1);
    plain.pay_in(1);
    assert_eq!(plain.balance(), 2, "the plain methods are unchanged");
    Ok(())
}

#[test]
fn external_functions_become_tasks() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    for vector in [vec![1.0, 2.0], vec![]] {
        let expected = linear::sum(&vector).map(|sum| 10.0 * sum);
        let returned = Workflow::new(tasks![scale, sum])?.workers(2).run(move || {
            let mut vector = Data::new(vector);
            scale(&mut vector, 10.0);
            Ok::<_, Failure>(
                sum(&vector).get().map(|sum| *sum).map_err(|failure| failure.reason().to_owned()),
            )
        })?;
        assert_eq!(returned, expected);
    }
    assert_eq!(sum::TASK.options.retry, 3);
    Ok(())
}
