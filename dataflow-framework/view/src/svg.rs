//! Output as SVG for browsers. Tooltips show the details of a box.

use std::fmt::Write as _;

use taskwork::display::{count, xml_escaped as escaped};

use crate::{
    calls::State,
    diagram::{Arrow, Diagram},
    dot::{CRITICAL, colour},
    layout::{BOX_HEIGHT, Layout, MARGIN, layout},
};

/// The height of the lines below the picture, in pixels.
const LEGEND_HEIGHT: f64 = 44.0;

/// The minimum width of a picture, to fit the legend.
const WIDTH_MIN: f64 = 550.0;

/// The edge of a box.
const EDGE: &str = "stroke=\"#777777\"";

impl Diagram {
    /// Returns the picture as SVG.
    pub fn svg(&self) -> String {
        let laid_out = layout(self);
        let (width, height) = (laid_out.width.max(WIDTH_MIN), laid_out.height + LEGEND_HEIGHT);
        let mut text = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
             viewBox=\"0 0 {width:.0} {height:.0}\" font-family=\"sans-serif\" font-size=\"12\">\n\
             <defs><marker id=\"tip\" viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\" markerUnits=\"userSpaceOnUse\" \
             markerWidth=\"8\" markerHeight=\"8\" orient=\"auto\"><path d=\"M0,0 L8,4 L0,8 z\" fill=\"#777777\"/>\
             </marker></defs>\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
        );
        text += "<g fill=\"none\" stroke=\"#999999\" marker-end=\"url(#tip)\">\n";
        let steps = self.steps();
        for arrow in self.sound_arrows() {
            draw_arrow(&mut text, *arrow, steps.contains(&(arrow.from, arrow.to)), &laid_out);
        }
        text += "</g>\n";
        for (number, (group, place)) in self.groups.iter().zip(&laid_out.boxes).enumerate() {
            let edge = if self.path.contains(&number) { critical_stroke() } else { EDGE.to_owned() };
            let (label, told) = (escaped(&group.label()), escaped(&group.description()));
            // Writing into a string cannot fail.
            let _ = writeln!(
                text,
                "<g><title>{told}</title><rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{BOX_HEIGHT:.1}\" \
                 rx=\"5\" fill=\"{}\" {edge}/><text x=\"{:.1}\" y=\"{:.1}\" \
                 text-anchor=\"middle\">{label}</text></g>",
                place.x,
                place.y,
                place.width,
                colour(group.state()),
                place.middle(),
                place.y + BOX_HEIGHT / 2.0 + 4.0,
            );
        }
        self.draw_legend(&mut text, laid_out.height);
        text + "</svg>\n"
    }

    fn draw_legend(&self, text: &mut String, y: f64) {
        let mut x = MARGIN;
        for state in State::ALL {
            let _ = writeln!(
                text,
                "<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"14\" height=\"14\" fill=\"{}\" stroke=\"#777777\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                y,
                colour(state),
                x + 20.0,
                y + 11.0,
                state.name(),
            );
            x += 85.0;
        }
        if !self.path.is_empty() {
            let (y, stroke) = (y + 7.0, critical_stroke());
            let _ = writeln!(
                text,
                "<path d=\"M{x:.1},{y:.1}h24\" {stroke}/><text x=\"{:.1}\" y=\"{:.1}\">critical</text>",
                x + 30.0,
                y + 4.0,
            );
        }
        let caption = escaped(&self.caption());
        let _ = writeln!(text, "<text x=\"{MARGIN:.1}\" y=\"{:.1}\">{caption}</text>", y + 32.0);
    }
}

/// Returns the line of the critical path.
pub(crate) fn critical_stroke() -> String {
    format!("stroke=\"{CRITICAL}\" stroke-width=\"3\"")
}

/// Draws an arrow from the lower edge of a box to the upper edge of another one; within a row, as an arc.
fn draw_arrow(text: &mut String, Arrow { from, to, reads }: Arrow, is_critical: bool, laid_out: &Layout) {
    let (from, to) = (laid_out.boxes[from], laid_out.boxes[to]);
    let (x, y, to_x) = (from.middle(), from.y + BOX_HEIGHT, to.middle());
    let is_below = to.y > from.y;
    let to_y = if is_below { to.y } else { to.y + BOX_HEIGHT };
    let reach = if is_below { (to_y - y) / 2.0 } else { BOX_HEIGHT };
    let (bend, to_bend) = (y + reach, if is_below { to_y - reach } else { to_y + reach });
    // The width grows by a pixel for ten times as many inputs.
    let stroke = if is_critical {
        critical_stroke()
    } else {
        format!("stroke-width=\"{:.1}\"", 1.0 + (reads as f64).log10())
    };
    let _ = writeln!(
        text,
        "<path d=\"M{x:.0},{y:.0} C{x:.0},{bend:.0} {to_x:.0},{to_bend:.0} {to_x:.0},{to_y:.0}\" \
         {stroke}><title>{} inputs</title></path>",
        count(reads),
    );
}

#[cfg(test)]
mod tests {
    use crate::{Call, Calls, Diagram, State};

    #[test]
    fn svg_has_box_per_group_and_line_per_arrow() {
        let call = |number, level| Call { number, task: 0, level, state: State::Running };
        let calls = Calls {
            tasks: vec!["less<T> & more".to_owned()],
            calls: vec![call(0, 0), call(1, 1)],
            reads: vec![(0, 1)],
            omitted: 3,
        };
        let svg = calls.diagram().svg();
        assert!(svg.contains("less&lt;T&gt; &amp; more #1") && !svg.contains("less<"), "{svg}");
        assert_eq!(svg.matches("<g>").count(), 2);
        assert_eq!(svg.matches("<path d=\"M").count(), 2, "the arrow, and the tip of all arrows");
        assert!(svg.contains("2 calls, the first ones; 3 later ones are not shown"), "{svg}");
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
    }

    #[test]
    fn program_without_calls_has_picture() {
        assert!(Diagram::default().svg().contains("0 calls"));
    }
}
