//! The arguments of the attribute: `#[task(priority = 5, retry = 3, on_failure = ignore, timeout = "2 min", effect)]`.

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote};
use syn::{
    Error, Expr, Ident, LitStr, Result, Token,
    parse::{Parse, ParseStream},
};

/// The options that all calls of a task have unless they say otherwise.
#[derive(Default)]
pub(crate) struct Options {
    given: Vec<(Ident, TokenStream)>,
    ignores: bool,
}

/// The options, which are fields of `dataflow_framework::Options`.
const KNOWN: [&str; 6] = ["priority", "retry", "on_failure", "timeout", "effect", "nondeterministic"];

/// Those of them that need no value.
const FLAGS: [&str; 2] = ["effect", "nondeterministic"];

/// What may follow a failure, and the names of that in `dataflow_framework::OnFailure`.
const ON_FAILURE: [(&str, &str); 3] =
    [("cancel_successors", "CancelSuccessors"), ("fail", "Fail"), ("ignore", IGNORE)];

const IGNORE: &str = "Ignore";

impl Options {
    /// Returns whether failures of the task are ignored.
    pub(crate) fn ignores(&self) -> bool {
        self.ignores
    }
}

/// Parses what follows a failure.
fn on_failure(input: ParseStream<'_>) -> Result<&'static str> {
    let name: Ident = input.parse()?;
    let known = ON_FAILURE.iter().find(|(known, _)| name == known);
    known.map(|(_, variant)| *variant).ok_or_else(|| {
        Error::new(name.span(), format!("on_failure is cancel_successors, fail or ignore, and not {name}"))
    })
}

/// Parses a duration, such as `"1 min 30 s"`, as an expression.
fn timeout(input: ParseStream<'_>) -> Result<TokenStream> {
    let text: LitStr = input.parse()?;
    let duration = humantime::parse_duration(&text.value()).map_err(|error| {
        Error::new(text.span(), format!("{:?} is no duration such as \"1 min 30 s\": {error}", text.value()))
    })?;
    let (seconds, nanoseconds) = (duration.as_secs(), duration.subsec_nanos());
    Ok(quote!(::core::option::Option::Some(::core::time::Duration::new(#seconds, #nanoseconds))))
}

impl Parse for Options {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let mut given: Vec<(Ident, TokenStream)> = Vec::new();
        let mut ignores = false;
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
            let is_alone = !input.peek(Token![=]) && FLAGS.iter().any(|flag| name == flag);
            if !is_alone {
                input.parse::<Token![=]>()?;
            }
            let value = if is_alone {
                quote!(true)
            } else if name == "on_failure" {
                let variant = on_failure(input)?;
                ignores = variant == IGNORE;
                let variant = Ident::new(variant, Span::call_site());
                quote!(::dataflow_framework::OnFailure::#variant)
            } else if name == "timeout" {
                timeout(input)?
            } else {
                input.parse::<Expr>()?.into_token_stream()
            };
            given.push((name, value));
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        Ok(Self { given, ignores })
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
        assert_eq!(given("effect, nondeterministic = true, retry = 1").ok(), Some(3));
        assert_eq!(given("on_failure = ignore, timeout = \"1 min 30 s\"").ok(), Some(2));
        for (text, expected) in [
            (
                "prioritty = 3",
                "there is no option prioritty; the options are priority, retry, on_failure, timeout, effect, \
                 nondeterministic",
            ),
            ("on_failure = retry", "on_failure is cancel_successors, fail or ignore, and not retry"),
            ("timeout = \"soon\"", "\"soon\" is no duration such as \"1 min 30 s\""),
            ("timeout = 3", "expected string literal"),
            ("retry = 1, retry = 2", "retry is given twice"),
            ("retry", "expected `=`"),
        ] {
            let error = given(text).expect_err("it is wrong").to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
