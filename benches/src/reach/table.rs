//! The results as the rows of a table.

use super::{GAP_AFTER_S, Reached};

/// Returns the first two lines of the table.
pub fn heading() -> String {
    let columns = [
        "instance".to_owned(),
        "program".to_owned(),
        "optimum".to_owned(),
        "proven".to_owned(),
        "time, s".to_owned(),
        "best".to_owned(),
        "bound".to_owned(),
        format!("gap after {GAP_AFTER_S} s, %"),
        "within 1 % after, s".to_owned(),
    ];
    let line = format!("| {} |", columns.join(" | "));
    format!("{line}\n|{}", " --- |".repeat(columns.len()))
}

/// Returns the line of an instance.
pub fn line(reached: &Reached) -> String {
    let Reached { instance, program, optimum, proven, seconds, best, bound, gap_after, near_s } = reached;
    let or_none = |text: Option<String>| text.unwrap_or_else(|| "–".to_owned());
    let whole = |cost: &Option<f64>| or_none(cost.map(|cost| cost.to_string()));
    let proven = if *proven { "yes" } else { "NO" };
    let gap = or_none(gap_after.map(|gap| format!("{:.2}", 100.0 * gap)));
    let near = or_none(near_s.map(|seconds| format!("{seconds:.3}")));
    let (best, bound) = (whole(best), whole(bound));
    format!(
        "| {instance} | {program} | {optimum} | {proven} | {seconds:.2} | {best} | {bound} | {gap} | {near} |"
    )
}

/// Returns the number of instances that each program has proven.
pub fn summary(all: &[Reached]) -> String {
    let mut programs: Vec<&str> = all.iter().map(|reached| reached.program.as_str()).collect();
    let of = |program: &&str| {
        let its: Vec<&Reached> = all.iter().filter(|reached| reached.program == *program).collect();
        let proven = its.iter().filter(|reached| reached.proven).count();
        format!("{program} {proven} of {}", its.len())
    };
    programs.sort_unstable();
    programs.dedup();
    format!("proven: {}", programs.iter().map(of).collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reached(program: &str, proven: bool) -> Reached {
        Reached {
            instance: "gr17".to_owned(),
            program: program.to_owned(),
            optimum: 2085,
            proven,
            seconds: 0.0123,
            best: Some(2085.0),
            bound: None,
            gap_after: Some(0.0125),
            near_s: None,
        }
    }

    #[test]
    fn line_has_a_cell_for_each_column() {
        let line = line(&reached("tsp", false));
        assert_eq!(line, "| gr17 | tsp | 2085 | NO | 0.01 | 2085 | – | 1.25 | – |");
        let columns = |line: &str| line.matches('|').count();
        assert!(heading().lines().all(|of_heading| columns(of_heading) == columns(&line)));
    }

    #[test]
    fn proven_instances_are_counted_by_program() {
        let all = [reached("tsp", true), reached("qap", false), reached("tsp", true), reached("tsp", false)];
        assert_eq!(summary(&all), "proven: qap 0 of 1, tsp 2 of 3");
    }
}
