//! The readers: every matrix format, free form, and arbitrary bytes.

use proptest::prelude::*;
use tsp_example::{
    generate::{Kind, generate, generate_file},
    read::{parse_instance, parse_tour, write_tour},
};

const CITIES: usize = 7;

/// Whether a format gives an entry, and whether it goes by columns: after its specification.
type Order = (&'static str, fn(usize, usize) -> bool, bool);

const FORMATS: [Order; 9] = [
    ("FULL_MATRIX", |_, _| true, false),
    ("UPPER_ROW", |row, column| column > row, false),
    ("LOWER_ROW", |row, column| column < row, false),
    ("UPPER_DIAG_ROW", |row, column| column >= row, false),
    ("LOWER_DIAG_ROW", |row, column| column <= row, false),
    ("UPPER_COL", |row, column| column > row, true),
    ("LOWER_COL", |row, column| column < row, true),
    ("UPPER_DIAG_COL", |row, column| column >= row, true),
    ("LOWER_DIAG_COL", |row, column| column <= row, true),
];

#[test]
fn every_format_of_a_matrix_gives_the_same_distances() {
    let instance = generate(CITIES, 11, Kind::Random);
    for (format, gives, by_columns) in FORMATS {
        let mut numbers = Vec::new();
        for line in 0..CITIES {
            for place in 0..CITIES {
                let (row, column) = if by_columns { (place, line) } else { (line, place) };
                if gives(row, column) {
                    numbers.push(instance.distance(row, column).to_string());
                }
            }
        }
        // Broken over lines at arbitrary places.
        let rows: Vec<String> = numbers.chunks(5).map(|row| row.join(" ")).collect();
        let head =
            format!("NAME: {}\nTYPE: TSP\nDIMENSION: {CITIES}\nEDGE_WEIGHT_TYPE: EXPLICIT", instance.name);
        let file =
            format!("{head}\nEDGE_WEIGHT_FORMAT: {format}\nEDGE_WEIGHT_SECTION\n{}\nEOF\n", rows.join("\n"));
        assert_eq!(parse_instance("m", file.as_bytes()).unwrap(), instance, "{format}");
    }
}

#[test]
fn layout_of_a_file_is_free() {
    let plain = "NAME: x\nTYPE: TSP\nDIMENSION: 4\nEDGE_WEIGHT_TYPE: EUC_2D\nNODE_COORD_SECTION\n\
                 1 0 0\n2 0 10\n3 10 10\n4 10 0\nEOF\n";
    let free = "COMMENT : one\r\nCOMMENT:two\r\n\r\nname :x\r\nTYPE : TSP (made up)\r\nNODE_COORD_TYPE: TWOD_COORDS\r\n\
                EDGE_WEIGHT_TYPE\t:\tEUC_2D\r\nDIMENSION : 4\r\nDISPLAY_DATA_TYPE: COORD_DISPLAY\r\n\
                NODE_COORD_SECTION\r\n  4 1.0e1 0\r\n 3 1E+01 10.0\r\n\r\n1 0. .0\r\n2 0 1D1\r\n";
    let read = |file: &str| parse_instance("p", file.as_bytes()).unwrap();
    assert_eq!(read(free), read(plain));
}

#[test]
fn csv_may_have_a_header_quotes_and_comments() {
    let plain = parse_instance("c.csv", b"a,0,0\nb,3,4\nc,6,8\n").unwrap();
    let other = "\u{feff}Name,X,Y\n# a comment\n\"a\" , 0 , 0\r\nb,3,4\n\nc,6,8\n";
    assert_eq!(parse_instance("c.csv", other.as_bytes()).unwrap(), plain);
    assert_eq!((plain.distance(0, 1), plain.label(1)), (5, "b".to_owned()));
    let quoted = parse_instance("c.csv", "\"Paris, the \"\"city\"\"\",0,0\nZürich,0,1\n".as_bytes()).unwrap();
    assert_eq!((quoted.label(0), quoted.label(1)), ("Paris, the \"city\"".to_owned(), "Zürich".to_owned()));
}

const CITIES_CSV: &str = "a,0,0\nb,3,4\nc,6,8\n";

#[test]
fn csv_is_recognised_by_its_rows_not_by_its_first_line() {
    let plain = parse_instance("c.csv", CITIES_CSV.as_bytes()).unwrap();
    let same = |text: &str| {
        let mut read =
            parse_instance("c.csv", text.as_bytes()).unwrap_or_else(|error| panic!("{text:?}: {error}"));
        let names = std::mem::replace(&mut read.names, plain.names.clone());
        assert_eq!(read, plain, "{text:?}");
        names.unwrap()[0].clone()
    };
    same(&format!("# source: own survey, 2020\n{CITIES_CSV}"));
    same(&format!("name , x , y\n{CITIES_CSV}"));
    same(&CITIES_CSV.replace('\n', "\r"));
    same(&format!("{CITIES_CSV}\x1a"));
    for separator in [";", "\t", " ; "] {
        same(&CITIES_CSV.replace(',', separator));
        same(&format!("name,x,y\n{CITIES_CSV}").replace(',', separator));
    }
    for name in ["Halle: west", "TYPE: x", "Name", "Type B", "EOF", "x;y", "DIMENSION : 5"] {
        assert_eq!(same(&CITIES_CSV.replacen('a', name, 1)), name);
    }
    let single = parse_instance("c.csv", b"Halle: west,0,0\n").unwrap();
    assert_eq!(single.label(0), "Halle: west");
}

#[test]
fn faulty_csv_gets_messages_about_csv() {
    let refused = |text: &str| parse_instance("c.csv", text.as_bytes()).unwrap_err().to_string();
    for (text, place, part) in [
        ("\"a\nwest\",0,0\nb,0,30\n", "c.csv:1:", "a quote that is not closed"),
        ("a;0,5;1,5\nb;1;2\n", "c.csv:1:", "\"0,5\"; expected a coordinate"),
        ("a,0,0\nb,1\n", "c.csv:2:", "2 fields"),
        ("a;0;0\nb,1,1\n", "c.csv:2:", "1 fields"),
    ] {
        let message = refused(text);
        assert!(
            message.starts_with(place) && message.contains(part) && !message.contains("TSPLIB"),
            "{message}"
        );
    }
}

#[test]
fn keyword_without_colon_may_have_commas_in_its_value() {
    let rest =
        "TYPE : TSP\nDIMENSION : 2\nEDGE_WEIGHT_TYPE : EUC_2D\nNODE_COORD_SECTION\n1 0 0\n2 3 4\nEOF\n";
    for name in
        ["NAME five, made up", "NAME five, 1, 2", "COMMENT : 1,2,3", "COMMENT: a; b; c", "COMMENT a\tb"]
    {
        let read = parse_instance("f", format!("{name}\n{rest}").as_bytes());
        assert_eq!(read.unwrap().distance(0, 1), 5, "{name}");
    }
}

#[test]
fn foreign_type_is_refused_before_its_sections() {
    let routes = "NAME : v\nTYPE : CVRP\nDIMENSION : 2\nVEHICLES : 2\nCAPACITY : 9\nEDGE_WEIGHT_TYPE : EUC_2D\n\
                  NODE_COORD_SECTION\n1 0 0\n2 3 4\nDEMAND_SECTION\n1 0\n2 1\nDEPOT_SECTION\n1\n-1\nEOF\n";
    let refused = |text: &str| parse_instance("v", text.as_bytes()).unwrap_err().to_string();
    let message = refused(routes);
    assert!(message.starts_with("v:2: found TYPE: \"CVRP\""), "{message}");
    let message = refused(&routes.replace("CVRP", "TSP"));
    assert!(message.starts_with("v:10: found a section of another type"), "{message}");
    let message = refused(&routes.replace("DEMAND", "TIME_WINDOW").replace("CVRP", "TSP"));
    assert!(message.starts_with("v:10: found a section of another type"), "{message}");
    let message = refused(&routes.replace("TYPE : CVRP\n", ""));
    assert!(message.contains("no TYPE"), "{message}");
}

#[test]
fn unknown_headers_with_a_value_are_skipped_and_text_after_eof_is_refused() {
    let file = "NAME : x\nTYPE : TSP\nBEST_KNOWN : 42\nDIMENSION : 2\nEDGE_WEIGHT_TYPE : EUC_2D\n\
                NODE_COORD_SECTION\n1 0 0\n2 3 4\nEOF\n";
    assert_eq!(parse_instance("x", file.as_bytes()).unwrap().distance(0, 1), 5);
    let refused = |text: &str| parse_instance("x", text.as_bytes()).unwrap_err().to_string();
    for header in ["BEST_KNOWN 42", "BEST_KNOWN :", "the best: 42"] {
        let message = refused(&file.replace("BEST_KNOWN : 42", header));
        assert!(message.starts_with("x:3: ") && message.contains("keyword"), "{header}: {message}");
    }
    assert!(refused(&file.replace("DIMENSION", "DIMENSIONS")).contains("no DIMENSION"));
    let message = refused(&format!("{file}more\n"));
    assert!(message.starts_with("x:10: ") && message.contains("nothing after EOF on line 9"), "{message}");
}

#[test]
fn type_of_a_tour_counts_by_its_first_word() {
    let tour =
        |kind: &str| parse_tour("t", format!("TYPE : {kind}\nTOUR_SECTION\n2\n1\n-1\nEOF\n").as_bytes(), 2);
    for kind in ["TOUR", "tour", "TOUR (five.tsp)"] {
        assert_eq!(tour(kind).unwrap(), [1, 0], "{kind}");
    }
    for kind in ["TSP", "TOURS", "(TOUR)"] {
        let message = tour(kind).unwrap_err().to_string();
        assert!(message.starts_with("t:1: ") && message.ends_with("expected TYPE: TOUR"), "{message}");
    }
    let marked = "TOUR_SECTION\r2\r1\r-1\rEOF\r\x1a";
    assert_eq!(parse_tour("t", marked.as_bytes(), 2).unwrap(), [1, 0], "line ends and an end mark");
}

#[test]
fn distances_distorted_by_rounding_are_noted() {
    let is_coarse = |text: &str| parse_instance("c.csv", text.as_bytes()).unwrap().is_coarse;
    assert!(is_coarse("a,0.1,0.1\nb,0.9,0.1\nc,0.9,0.9\n"));
    assert!(is_coarse("name,lat,lon\na,52.0,13.0\nb,52.001,13.001\nc,52.002,13.0\n"));
    assert!(!is_coarse("a,100,100\nb,900,100\nc,900,900\n"));
    let unit = "TYPE:TSP\nDIMENSION:3\nEDGE_WEIGHT_TYPE:KIND\nNODE_COORD_SECTION\n1 0 0\n2 0 1\n3 1 0\n";
    assert!(is_coarse(&unit.replace("KIND", "CEIL_2D")) && is_coarse(&unit.replace("KIND", "EUC_2D")));
    assert!(!is_coarse(&unit.replace("KIND", "MAN_2D")), "these are whole numbers");
}

#[test]
fn written_tour_reads_back_unchanged() {
    let instance = generate(9, 2, Kind::Euclidean);
    let tour: Vec<usize> = (0..9).rev().collect();
    assert_eq!(parse_tour("t", write_tour(&instance, &tour).as_bytes(), 9).unwrap(), tour);
}

/// A valid file to be corrupted.
fn valid() -> impl Strategy<Value = String> {
    prop::sample::select(vec![
        generate_file(5, 1, Kind::Euclidean),
        generate_file(5, 1, Kind::Random),
        "name,lat,lon\nParis,48.86,2.35\nRome,41.90,12.50\nBern,46.95,7.45\n".to_owned(),
        "TYPE: TSP\nDIMENSION: 3\nEDGE_WEIGHT_TYPE: GEO\nNODE_COORD_SECTION\n1 1.5 2.5\n2 3 4\n3 5 6\nEOF\n"
            .to_owned(),
    ])
}

proptest! {
    #[test]
    fn readers_do_not_panic_on_arbitrary_bytes(bytes: Vec<u8>) {
        let _ = parse_instance("f", &bytes);
        let _ = parse_tour("f", &bytes, 5);
    }

    #[test]
    fn readers_do_not_panic_on_corrupted_files(
        file in valid(),
        spoils in prop::collection::vec((any::<prop::sample::Index>(), 0..5, "[-+0-9a-zA-Z_:., \\n\"]{0,12}"), 1..6),
    ) {
        let mut words: Vec<String> = file.split_inclusive([' ', '\n', ',']).map(str::to_owned).collect();
        for (place, what, text) in spoils {
            let place = place.index(words.len());
            match what {
                0 => { words.remove(place); }
                1 => words[place] = text,
                2 => { let word = words[place].clone(); words.insert(place, word); }
                3 => words.insert(place, text),
                _ => words.truncate(place + 1),
            }
            if words.is_empty() {
                words.push("\n".to_owned());
            }
        }
        let spoilt = words.concat();
        if let Err(error) = parse_instance("f", spoilt.as_bytes()) {
            prop_assert!(error.to_string().starts_with("f:"), "{}", error);
        }
        let _ = parse_tour("f", spoilt.as_bytes(), 5);
    }
}
