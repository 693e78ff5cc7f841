//! Parts of SVG files.

/// The colours of both grounds. Each has a contrast of at least 3 to 1, texts of 4.5 to 1.
pub(super) const STYLE: &str = ".ground{fill:#ffffff}text{font:12px sans-serif}.line{fill:none;stroke-width:1.5;stroke-linejoin:round}\
.dot{fill:none;stroke-width:5;stroke-linecap:round}path.main{stroke:#1f5fa8}path.mark{stroke:#b3261e}path.faint{stroke:#8a8a8a;stroke-width:1}\
text.main,text.mark{fill:#1a1a1a}text.faint{fill:#595959}\
@media(prefers-color-scheme:dark){.ground{fill:#16181c}path.main{stroke:#7db3f0}path.mark{stroke:#ff8a80}path.faint{stroke:#7d7d7d}\
text.main,text.mark{fill:#ececec}text.faint{fill:#b0b0b0}}";

/// Formats a coordinate in tenths of a pixel; one that is no number is at the origin.
pub(super) fn number(pixels: f64) -> String {
    if !pixels.is_finite() {
        return "0".to_owned();
    }
    let text = format!("{:.1}", pixels.clamp(-1e6, 1e6));
    let text = text.strip_suffix(".0").unwrap_or(&text);
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coordinates_are_short() {
        for (pixels, shown) in [
            (1.0, "1"),
            (1.25, "1.2"),
            (-0.01, "0"),
            (-3.45, "-3.5"),
            (f64::NAN, "0"),
            (f64::NEG_INFINITY, "0"),
            (1e300, "1000000"),
        ] {
            assert_eq!(number(pixels), shown);
        }
    }
}
