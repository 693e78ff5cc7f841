//! The arguments of the attribute: `#[task(priority = 5, retry = 3)]`.

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote};
use syn::{
    Error, Expr, Ident, Result, Token,
    parse::{Parse, ParseStream},
};

/// The options that all calls of a task have unless they say otherwise.
#[derive(Default)]
pub(crate) struct Options {
    given: Vec<(Ident, Expr)>,
}

/// The options with a value, which are fields of `dataflow_framework::Options`.
const KNOWN: [&str; 2] = ["priority", "retry"];

impl Parse for Options {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let mut given: Vec<(Ident, Expr)> = Vec::new();
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
            input.parse::<Token![=]>()?;
            given.push((name, input.parse()?));
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        Ok(Self { given })
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
        for (text, expected) in [
            ("prioritty = 3", "there is no option prioritty; the options are priority, retry"),
            ("retry = 1, retry = 2", "retry is given twice"),
            ("retry", "expected `=`"),
        ] {
            let error = given(text).expect_err("it is wrong").to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
