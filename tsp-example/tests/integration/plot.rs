//! `tsp solve --plot`: a tour as a map.

use std::fs;

use crate::command::{Desk, instance, tsp};

/// Reads a picture, which must be well formed, and returns it with its description.
fn read(file: &str) -> (String, String) {
    let text = fs::read_to_string(file).unwrap();
    let described = {
        let svg = roxmltree::Document::parse(&text).unwrap();
        let root = svg.root_element();
        assert_eq!(root.tag_name().name(), "svg");
        let named = |name: &str| {
            root.children().find(|node| node.has_tag_name((root.tag_name().namespace().unwrap(), name)))
        };
        assert!(!named("title").unwrap().text().unwrap().is_empty());
        named("desc").unwrap().text().unwrap().to_owned()
    };
    (text, described)
}

#[test]
fn tour_is_drawn_next_to_its_improvements() {
    let desk = Desk::new();
    let file = desk.path("tour.svg").display().to_string();
    let output = tsp(&["solve", &instance("europe.csv"), "--plot", &file, "--quiet"]);
    assert!(output.status.success(), "{output:?}");
    let (text, described) = read(&file);
    assert!(described.contains("A closed tour of 44 cities: "), "{described}");
    assert!(described.contains("Improvements seen: ") && described.contains("to 18707 after"), "{described}");
    assert!(described.contains("Reykjavik") && text.contains(">Reykjavik</text>"));
    assert!(text.contains("europe: a tour of length 18707") && text.contains("prefers-color-scheme:dark"));
    assert!(text.len() < 100_000, "{} bytes", text.len());
}

#[test]
fn tsplib_coordinates_and_display_data_are_drawn() {
    let desk = Desk::new();
    let coordinates = "NAME: a<b\nTYPE: TSP\nDIMENSION: 4\nEDGE_WEIGHT_TYPE: EUC_2D\nNODE_COORD_SECTION\n\
                       1 0 0\n2 0 10\n3 10 10\n4 10 0\nEOF\n";
    let matrix = "NAME: m\nTYPE: TSP\nDIMENSION: 4\nEDGE_WEIGHT_TYPE: EXPLICIT\nEDGE_WEIGHT_FORMAT: FULL_MATRIX\n\
                  DISPLAY_DATA_TYPE: TWOD_DISPLAY\nEDGE_WEIGHT_SECTION\n0 1 2 1\n1 0 1 2\n2 1 0 1\n1 2 1 0\n";
    let displayed = format!("{matrix}DISPLAY_DATA_SECTION\n1 0 0\n2 0 1\n3 1 1\n4 1 0\nEOF\n");
    for (name, content) in [("coordinates.tsp", coordinates), ("displayed.tsp", &displayed)] {
        let (file, plot) = (desk.write(name, content), desk.path("plot.svg").display().to_string());
        let output = tsp(&["solve", &file, "--plot", &plot, "--quiet"]);
        assert!(output.status.success(), "{name}: {output:?}");
        let (_, described) = read(&plot);
        assert!(described.starts_with("A closed tour of 4 cities: "), "{described}");
        let output = tsp(&["solve", &file, "--plot", &plot, "--quiet", "--sequential"]);
        assert!(output.status.success(), "{name}: {output:?}");
        assert!(read(&plot).1.starts_with("A closed tour of 4 cities: "), "also without the runtime");
    }
    let file = desk.write("matrix.tsp", matrix.replace("DISPLAY_DATA_TYPE: TWOD_DISPLAY\n", "") + "EOF\n");
    let plot = desk.path("none.svg");
    let output = tsp(&["solve", &file, "--plot", &plot.display().to_string()]);
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(message.contains("matrix.tsp: --plot") && message.contains("DISPLAY_DATA_SECTION"), "{message}");
    assert!(!plot.exists(), "nothing is drawn");
}
