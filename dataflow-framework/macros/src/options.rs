//! The arguments of the attribute: `#[task(priority = 5, on_failure = ignore, timeout = "2 min", cores = 4, spread)]`.

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote};
use syn::{
    Error, Expr, Ident, LitStr, Result, Token,
    parse::{Parse, ParseStream},
};

use crate::{constraints, signature::Signature};

/// The default options of all calls of a task.
#[derive(Default)]
pub(crate) struct Options {
    given: Vec<(Ident, TokenStream)>,
    ignores: bool,
    /// The version of a cached task: `cached = "v2"`.
    version: Option<LitStr>,
}

/// The options, which are fields of `dataflow_framework::Options`.
const KNOWN: [&str; 17] = [
    "priority",
    "retry",
    "pause",
    "pause_max",
    "on_failure",
    "timeout",
    "cores",
    "memory",
    "needs",
    "limits",
    "spread",
    "everywhere",
    "isolated",
    "memory_max",
    "effect",
    "nondeterministic",
    CACHED,
];

/// The options without a value.
const FLAGS: [&str; 4] = ["isolated", "effect", "nondeterministic", CACHED];

const CACHED: &str = "cached";

/// The reactions to a failure, and their names in `dataflow_framework::OnFailure`.
const ON_FAILURE: [(&str, &str); 4] = [
    ("cancel_successors", "CancelSuccessors"),
    ("cancel_group", "CancelGroup"),
    ("fail", "Fail"),
    ("ignore", IGNORE),
];

const IGNORE: &str = "Ignore";

impl Options {
    pub(crate) fn are_none(&self) -> bool {
        self.given.is_empty()
    }

    pub(crate) fn ignores(&self) -> bool {
        self.ignores
    }

    /// Returns the version of a cached task, or an empty one.
    pub(crate) fn version(&self) -> String {
        self.version.as_ref().map(LitStr::value).unwrap_or_default()
    }

    /// Refuses options that contradict the types of the function.
    pub(crate) fn check(&self, signature: &Signature) -> Result<()> {
        let find = |option: &str| self.given.iter().find(|(name, _)| name == option);
        if let Some((name, _)) = find("cores").filter(|_| signature.future.is_some()) {
            return Err(Error::new(
                name.span(),
                "an `async` task occupies no worker: leave `cores` out, or `async` if it computes",
            ));
        }
        match find(CACHED) {
            Some((name, _)) if signature.returned.results.iter().any(|made| made.is_handed_on) => {
                Err(Error::new(
                    name.span(),
                    "a cached task returns its data, not a handle: its calls would not be in the cache",
                ))
            }
            _ => Ok(()),
        }
    }
}

fn on_failure(input: ParseStream<'_>) -> Result<&'static str> {
    let name: Ident = input.parse()?;
    let known = ON_FAILURE.iter().find(|(known, _)| name == known);
    known.map(|(_, variant)| *variant).ok_or_else(|| {
        let text = format!("on_failure is cancel_successors, cancel_group, fail or ignore, and not {name}");
        Error::new(name.span(), text)
    })
}

/// Parses a duration, such as `"1 min 30 s"`, as an expression.
fn duration(input: ParseStream<'_>) -> Result<TokenStream> {
    let text: LitStr = input.parse()?;
    let duration = humantime::parse_duration(&text.value()).map_err(|error| {
        Error::new(text.span(), format!("{:?} is no duration such as \"1 min 30 s\": {error}", text.value()))
    })?;
    let (seconds, nanoseconds) = (duration.as_secs(), duration.subsec_nanos());
    Ok(quote!(::core::option::Option::Some(::core::time::Duration::new(#seconds, #nanoseconds))))
}

fn value(name: &Ident, input: ParseStream<'_>) -> Result<TokenStream> {
    if name == "spread" || name == "everywhere" {
        return Ok(quote!(true));
    }
    if name == "needs" {
        return constraints::labels(input);
    }
    if name == "limits" {
        return constraints::limits(input);
    }
    if FLAGS.iter().any(|flag| name == flag) && !input.peek(Token![=]) {
        return Ok(quote!(true));
    }
    input.parse::<Token![=]>()?;
    if name == "on_failure" {
        let variant = Ident::new(on_failure(input)?, Span::call_site());
        Ok(quote!(::dataflow_framework::OnFailure::#variant))
    } else if ["timeout", "pause", "pause_max"].iter().any(|known| name == known) {
        duration(input)
    } else if name == "memory" {
        constraints::memory(input)
    } else if name == "memory_max" {
        let bytes = constraints::memory(input)?;
        Ok(quote!(::core::option::Option::Some(#bytes)))
    } else if name == "cores" {
        constraints::cores(input)
    } else {
        Ok(input.parse::<Expr>()?.into_token_stream())
    }
}

impl Parse for Options {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let mut given: Vec<(Ident, TokenStream)> = Vec::new();
        let (mut ignores, mut given_version) = (false, None);
        while !input.is_empty() {
            let name: Ident = input.parse()?;
            if !KNOWN.iter().any(|known| name == known) {
                let known = KNOWN.join(", ");
                return Err(Error::new(
                    name.span(),
                    format!("there is no option {name}; the options are {known}"),
                ));
            }
            if given.iter().any(|(before, _)| *before == name) {
                return Err(Error::new(name.span(), format!("{name} is given twice")));
            }
            let version = if name == CACHED && input.peek(Token![=]) && input.peek2(LitStr) {
                input.parse::<Token![=]>()?;
                Some(input.parse()?)
            } else {
                None
            };
            let value = if version.is_some() { quote!(true) } else { value(&name, input)? };
            given_version = given_version.or(version);
            if name == "on_failure" {
                ignores = value.to_string().ends_with(IGNORE);
            }
            given.push((name, value));
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        let find = |option: &str| given.iter().find(|(name, _)| name == option);
        let is_set = |option: &str| find(option).is_some_and(|(_, value)| value.to_string() == "true");
        if let Some((name, _)) = find(CACHED).filter(|_| is_set("effect") || is_set("nondeterministic")) {
            let reason =
                "a cached task has no effect and is deterministic: later programs do not run it again";
            return Err(Error::new(name.span(), reason));
        }
        match find("pause").or(find("pause_max")) {
            Some((name, _)) if find("retry").is_none() => {
                Err(Error::new(name.span(), "a pause needs retry, such as retry = 5, pause = \"1 s\""))
            }
            _ => Ok(Self { given, ignores, version: given_version }),
        }
    }
}

impl ToTokens for Options {
    fn to_tokens(&self, tokens: &mut TokenStream) {
        let (names, values): (Vec<_>, Vec<_>) = self.given.iter().map(|(name, value)| (name, value)).unzip();
        // At the place of the attribute, where the names are the framework's.
        let framework = Ident::new("dataflow_framework", Span::call_site());
        tokens.extend(quote! {
            ::#framework::Options { #(#names: #values,)* ..::#framework::Options::DEFAULT }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::Options;

    #[test]
    fn options_are_named_and_given_once() {
        let given = |text: &str| syn::parse_str::<Options>(text).map(|options| options.given.len());
        assert_eq!(given("").ok(), Some(0));
        assert_eq!(given("retry = 3, priority = 2 * LOW").ok(), Some(2));
        assert_eq!(given("cores = 4, memory = \"2 GiB\", needs(\"blast\", \"os=linux\")").ok(), Some(3));
        assert_eq!(given("limits(\"licence=2\", \"disk=1\"), retry = 1").ok(), Some(2));
        assert_eq!(given("spread, everywhere, cores = THREADS, memory = 1 << 20").ok(), Some(4));
        assert_eq!(given("effect, nondeterministic = true, retry = 1").ok(), Some(3));
        assert_eq!(given("on_failure = ignore, timeout = \"1 min 30 s\"").ok(), Some(2));
        assert_eq!(given("isolated, memory_max = \"2 GiB\"").ok(), Some(2));
        assert_eq!(given("isolated = SOME, retry = 2").ok(), Some(2));
        assert_eq!(given("pause = \"1 s\", pause_max = \"1 min\", retry = 5").ok(), Some(3));
        assert_eq!(given("cached, retry = 2").ok(), Some(2));
        assert_eq!(given("cached = \"v2\", effect = false").ok(), Some(2));
        for (text, expected) in [
            (
                "prioritty = 3",
                "there is no option prioritty; the options are priority, retry, pause, pause_max, on_failure, timeout, cores, \
                 memory, needs, limits, spread, everywhere, isolated, memory_max, effect, nondeterministic, cached",
            ),
            (
                "on_failure = retry",
                "on_failure is cancel_successors, cancel_group, fail or ignore, and not retry",
            ),
            ("timeout = \"soon\"", "\"soon\" is no duration such as \"1 min 30 s\""),
            ("timeout = 3", "expected string literal"),
            ("retry = 1, pause = \"long\"", "\"long\" is no duration such as"),
            ("pause = \"1 s\"", "a pause needs retry"),
            ("cores = 0", "a call takes at least one worker"),
            ("memory = \"2 gigs\"", "\"2 gigs\" is no size such as \"2 GiB\" or \"500 MB\""),
            ("needs = \"blast\"", "expected parentheses"),
            ("limits()", "limits names at least one limit, such as limits(\"licence=2\")"),
            (
                "limits(\"licence=0\")",
                "\"licence=0\" is no limit: expected NAME=CALLS, such as \"licence=2\"",
            ),
            ("needs()", "needs names at least one label, such as needs(\"blast\")"),
            (
                "needs(\"a b\")",
                "\"a b\" is no label: expected a name, or name=value, of letters, digits, - _ . and /",
            ),
            ("spread = true", "expected `,`"),
            ("cached, nondeterministic", "a cached task has no effect and is deterministic"),
            ("effect, cached = \"v2\"", "a cached task has no effect and is deterministic"),
            ("memory_max = \"2 gigs\"", "\"2 gigs\" is no size such as"),
            ("retry = 1, retry = 2", "retry is given twice"),
            ("retry", "expected `=`"),
        ] {
            let error = given(text).expect_err("it is wrong").to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
