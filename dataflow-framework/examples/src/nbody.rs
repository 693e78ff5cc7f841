//! Bodies that attract each other, in domains (Tejedor 2013, section 6.4.2).
//!
//! In each round, every domain adds up the forces of all others on its bodies, and then moves the bodies. It reads
//! snapshots of the other domains, clones of handles, so no domain waits for another within a round.

use dataflow_framework::{Data, Failure, program, task};
use rand::{Rng as _, SeedableRng as _, rngs::StdRng};
use serde::{Deserialize, Serialize};

use crate::positive;

/// The size of the simulation.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, clap::Args)]
pub struct Input {
    /// The number of domains.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..))]
    pub domains: u64,
    /// The number of bodies of a domain.
    #[arg(long, default_value_t = 100, value_parser = positive)]
    pub bodies: usize,
    /// The number of rounds.
    #[arg(long, default_value_t = 10)]
    pub rounds: usize,
}

/// A place, a velocity or a force.
type Vector = [f64; 3];

/// A body.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Body {
    mass: f64,
    place: Vector,
    velocity: Vector,
    /// The force on it so far, in this round.
    force: Vector,
}

/// Bodies that are moved by one task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Domain {
    /// Its bodies.
    pub bodies: Vec<Body>,
}

/// The time of a round.
const STEP: f64 = 0.01;

/// Is added to squared distances, so that bodies that meet are not flung away.
const SOFTENING: f64 = 1e-3;

impl Body {
    /// Adds the force of another one.
    fn add(&mut self, other: &Self) {
        let way: [f64; 3] = std::array::from_fn(|axis| other.place[axis] - self.place[axis]);
        let squared = way.iter().map(|way| way * way).sum::<f64>() + SOFTENING;
        let factor = self.mass * other.mass / (squared * squared.sqrt());
        for (force, way) in self.force.iter_mut().zip(way) {
            *force += factor * way;
        }
    }

    /// Moves it by the force on it, which is none then.
    fn advance(&mut self) {
        for axis in 0..3 {
            self.velocity[axis] += self.force[axis] / self.mass * STEP;
            self.place[axis] += self.velocity[axis] * STEP;
        }
        self.force = [0.0; 3];
    }
}

/// Makes a domain of bodies that rest.
#[task]
pub fn domain(bodies: usize, seed: u64) -> Domain {
    let mut random = StdRng::seed_from_u64(seed);
    let body = |_| Body {
        mass: random.random_range(1.0..2.0),
        place: std::array::from_fn(|_| random.random()),
        velocity: [0.0; 3],
        force: [0.0; 3],
    };
    Domain { bodies: (0..bodies).map(body).collect() }
}

/// Adds the forces of the bodies of another domain.
#[task]
pub fn add_force(to: &mut Domain, from: &Domain) {
    for body in &mut to.bodies {
        from.bodies.iter().for_each(|other| body.add(other));
    }
}

/// Adds the forces between its own bodies, and moves them all.
#[task]
pub fn move_bodies(domain: &mut Domain) {
    let before = domain.bodies.clone();
    for (number, body) in domain.bodies.iter_mut().enumerate() {
        let others = before.iter().enumerate().filter(|(other, _)| *other != number);
        others.for_each(|(_, other)| body.add(other));
        body.advance();
    }
}

/// Returns the domains after the last round.
fn simulate(input: Input) -> Result<Vec<Domain>, Failure> {
    let mut domains: Vec<_> = (0..input.domains).map(|seed| domain(input.bodies, seed)).collect();
    for _ in 0..input.rounds {
        let before: Vec<Data<Domain>> = domains.clone();
        for (number, domain) in domains.iter_mut().enumerate() {
            for (_, other) in before.iter().enumerate().filter(|(other, _)| *other != number) {
                add_force(domain, other);
            }
        }
        drop(before);
        domains.iter_mut().for_each(move_bodies);
    }
    domains.iter().map(|domain| Ok((*domain.get()?).clone())).collect()
}

/// The centre of mass of bodies.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct Centre {
    bodies: usize,
    centre: Vector,
}

impl Centre {
    fn of(domains: &[Domain]) -> Self {
        let bodies: Vec<_> = domains.iter().flat_map(|domain| &domain.bodies).collect();
        let mass: f64 = bodies.iter().map(|body| body.mass).sum();
        let centre = std::array::from_fn(|axis| {
            bodies.iter().map(|body| body.mass * body.place[axis]).sum::<f64>() / mass
        });
        Self { bodies: bodies.len(), centre }
    }
}

/// Moves bodies that attract each other. Returns their centre of mass after the last round.
///
/// # Errors
/// If a call fails.
#[program(domain, add_force, move_bodies)]
pub fn nbody(#[command(flatten)] input: Input) -> Result<Centre, Failure> {
    Ok(Centre::of(&simulate(input)?))
}

#[cfg(test)]
mod tests {
    use dataflow_framework::{Main, Program as _, Workflow, WorkflowError};

    use super::{Body, Centre, Domain, Input, domain, nbody, simulate};

    /// Moves all bodies by loops, without domains but for the order in which forces are added.
    fn expected(input: Input) -> Vec<Domain> {
        let size = input.bodies;
        let mut bodies: Vec<Body> =
            (0..input.domains).flat_map(|seed| domain::now(size, seed).bodies).collect();
        for _ in 0..input.rounds {
            let before = bodies.clone();
            for (number, body) in bodies.iter_mut().enumerate() {
                let own = number / size * size..(number / size + 1) * size;
                let others = (0..before.len()).filter(|other| !own.contains(other));
                for other in others.chain(own.clone()).filter(|other| *other != number) {
                    body.add(&before[other]);
                }
                body.advance();
            }
        }
        bodies.chunks(size).map(|bodies| Domain { bodies: bodies.to_vec() }).collect()
    }

    #[test]
    fn result_is_bitwise_equal_to_loops_in_all_modes() -> Result<(), Box<dyn std::error::Error + Send + Sync>>
    {
        for (domains, bodies) in [(3, 9), (5, 4), (1, 6)] {
            let input = Input { domains, bodies, rounds: 4 };
            let expected = expected(input);
            assert_eq!(Workflow::new(nbody::tasks())?.sequential().run(|| simulate(input))?, expected);
            for workers in [1, 4] {
                assert_eq!(
                    Workflow::new(nbody::tasks())?.workers(workers).run(|| simulate(input))?,
                    expected
                );
            }
            let report = Main::<nbody>::job((input,)).nodes(3).run()?;
            assert_eq!(Main::<nbody>::returned(&report)?, Centre::of(&expected));
        }
        Ok(())
    }

    /// Three domains add the forces of two others each, and move their bodies.
    #[test]
    fn round_of_three_domains_makes_nine_calls() -> Result<(), WorkflowError> {
        for rounds in 1..4 {
            let input = Input { domains: 3, bodies: 1, rounds: 2 * rounds };
            let (_, figures) =
                Workflow::new(nbody::tasks())?.workers(2).run_with_stats(|| simulate(input))?;
            let rounds = 2 * rounds as u64;
            assert_eq!(figures.calls, 3 + 9 * rounds);
            assert_eq!(figures.dependencies, (6 * 2 + 3) * rounds);
            assert_eq!(figures.depth, 1 + 3 * rounds);
        }
        Ok(())
    }

    #[test]
    fn bodies_approach_each_other() -> Result<(), WorkflowError> {
        let input = Input { domains: 2, bodies: 1, rounds: 5 };
        let distance = |domains: &[Domain]| -> f64 {
            let [a, b] = [&domains[0].bodies[0].place, &domains[1].bodies[0].place];
            a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum()
        };
        let before =
            Workflow::new(nbody::tasks())?.sequential().run(|| simulate(Input { rounds: 0, ..input }))?;
        let after = Workflow::new(nbody::tasks())?.workers(2).run(|| simulate(input))?;
        assert!(distance(&after) < distance(&before));
        Ok(())
    }
}
