//! Output as DOT, the language of Graphviz.

use std::{collections::BTreeMap, fmt::Write as _};

use taskwork::display::count;

use crate::{calls::State, diagram::Diagram};

impl Diagram {
    /// Returns the picture as DOT, for `dot` and other layout programs.
    pub fn dot(&self) -> String {
        let mut text =
            "digraph workflow {\n  rankdir=TB;\n  node [shape=box, style=\"rounded,filled\"];\n".to_owned();
        // Writing into a string cannot fail.
        let _ = writeln!(text, "  label={};", quoted(&self.caption()));
        let mut rows = BTreeMap::<u32, Vec<usize>>::new();
        for (number, group) in self.groups.iter().enumerate() {
            let (label, tip) = (quoted(&group.label()), quoted(&group.description()));
            let colour = colour(group.state());
            let mark = if self.path.contains(&number) {
                format!(", penwidth=3, color=\"{CRITICAL}\"")
            } else {
                String::new()
            };
            let _ =
                writeln!(text, "  g{number} [label={label}, tooltip={tip}, fillcolor=\"{colour}\"{mark}];");
            rows.entry(group.row).or_default().push(number);
        }
        for row in rows.values().filter(|row| row.len() > 1) {
            let row: Vec<_> = row.iter().map(|number| format!("g{number}")).collect();
            let _ = writeln!(text, "  {{ rank=same; {} }}", row.join("; "));
        }
        let steps = self.steps();
        for arrow in self.sound_arrows() {
            let mut options = Vec::new();
            if steps.contains(&(arrow.from, arrow.to)) {
                options.push(format!("penwidth=3, color=\"{CRITICAL}\""));
            }
            if arrow.reads > 1 {
                options.push(format!("label=\"{}\"", count(arrow.reads)));
            }
            let options =
                if options.is_empty() { String::new() } else { format!(" [{}]", options.join(", ")) };
            let _ = writeln!(text, "  g{} -> g{}{options};", arrow.from, arrow.to);
        }
        text + "}\n"
    }
}

/// The colour of the critical path.
pub(crate) const CRITICAL: &str = "#7a4fc4";

/// Returns the colour of a state.
pub(crate) fn colour(state: State) -> &'static str {
    match state {
        State::Waiting => "#eeeeee",
        State::Ready => "#fff2b3",
        State::Running => "#b3d9ff",
        State::Ended => "#c8e6c9",
        State::Failed => "#ffb3b3",
    }
}

/// Quotes a text as a DOT string.
fn quoted(text: &str) -> String {
    let escaped: String = text
        .chars()
        .flat_map(|c| match c {
            '"' | '\\' => vec!['\\', c],
            c if c.is_control() => vec![' '],
            c => vec![c],
        })
        .collect();
    format!("\"{escaped}\"")
}

#[cfg(test)]
mod tests {
    use crate::{Call, Calls, State};

    #[test]
    fn dot_contains_every_group_and_arrow() {
        let call = |number, level| Call { number, task: 0, level, state: State::Ended };
        let calls = Calls {
            tasks: vec!["say \"hi\"\\n".to_owned()],
            calls: vec![call(0, 0), call(1, 0), call(5, 1)],
            reads: vec![(0, 2), (1, 2), (1, 2)],
            omitted: 0,
        };
        let dot = calls.diagram().dot();
        assert!(dot.contains(r#"g2 [label="say \"hi\"\\n #5", tooltip="#), "{dot}");
        assert!(dot.contains("{ rank=same; g0; g1 }"), "{dot}");
        assert!(dot.contains("  g0 -> g2;\n") && dot.contains("  g1 -> g2 [label=\"2\"];\n"), "{dot}");
        assert!(dot.ends_with("}\n"));
    }
}
