//! The price per hour of a node, from its labels: `price=0.10/h,currency=EUR`.

use thiserror::Error;
use zk::Labels;

/// The label with the price per hour.
pub(super) const PRICE: &str = "price";
/// The label with the currency of the price.
pub(super) const CURRENCY: &str = "currency";
/// The suffix of a price.
const AN_HOUR: &str = "/h";
/// The maximum price per hour; a higher one is a mistake.
const PRICE_MAX: f64 = 1e6;
/// The number of letters of a currency (ISO 4217).
const CURRENCY_LETTERS: usize = 3;

/// The price per hour of a node.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Price {
    pub(super) an_hour: f64,
    pub(super) currency: String,
}

/// The errors in labels that should specify a price.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(super) enum PriceError {
    /// The price is not a number per hour.
    #[error("label price={said} is invalid: expected a number per hour, as in price=0.10/h")]
    Price { said: String },
    /// The currency is missing.
    #[error("label price={said} has no currency: add one, as in currency=EUR")]
    NoCurrency { said: String },
    /// The currency is not a single currency code.
    #[error("label currency={said} is invalid: expected three capital letters, as in currency=EUR")]
    Currency { said: String },
}

impl Price {
    /// Returns the price that labels specify; `None` if they specify none.
    ///
    /// # Errors
    /// If the labels are invalid.
    pub(super) fn of(labels: &Labels) -> Result<Option<Self>, PriceError> {
        let currency = labels.get(CURRENCY);
        if let Some(said) = currency.filter(|said| !is_currency(said)) {
            return Err(PriceError::Currency { said: said.to_owned() });
        }
        let Some(said) = labels.get(PRICE) else { return Ok(None) };
        let an_hour = amount(said).ok_or_else(|| PriceError::Price { said: said.to_owned() })?;
        let currency = currency.ok_or_else(|| PriceError::NoCurrency { said: said.to_owned() })?;
        Ok(Some(Self { an_hour, currency: currency.to_owned() }))
    }

    /// Returns the cost of a time.
    pub(super) fn of_ms(&self, ms: f64) -> f64 {
        self.an_hour * (ms / 3_600_000.0)
    }
}

fn is_currency(text: &str) -> bool {
    text.len() == CURRENCY_LETTERS && text.bytes().all(|byte| byte.is_ascii_uppercase())
}

/// Parses a decimal number per hour. Other notations of numbers, such as `1e3` and `inf`, are refused.
fn amount(text: &str) -> Option<f64> {
    let number = text.strip_suffix(AN_HOUR)?;
    let is_decimal =
        number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') && !number.ends_with('.');
    let amount: f64 = number.parse().ok().filter(|_| is_decimal)?;
    (amount <= PRICE_MAX).then_some(amount)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(labels: &str) -> Result<Option<Price>, String> {
        Price::of(&labels.parse().unwrap()).map_err(|error| error.to_string())
    }

    #[test]
    fn price_label_with_number_per_hour_and_currency_is_parsed() {
        for (said, an_hour) in
            [("0.10/h", 0.10), ("0/h", 0.0), ("12/h", 12.0), (".5/h", 0.5), ("1000000/h", 1e6)]
        {
            let price = of(&format!("price={said},currency=EUR,zone=a")).unwrap().unwrap();
            assert_eq!((price.an_hour, &*price.currency), (an_hour, "EUR"), "{said}");
        }
        assert_eq!((of("zone=a"), of("currency=EUR")), (Ok(None), Ok(None)), "no price is no mistake");
        let price = Price { an_hour: 0.5, currency: "EUR".to_owned() };
        assert!((price.of_ms(1_800_000.0) - 0.25).abs() < 1e-12);
    }

    #[test]
    fn price_label_invalid_error_shows_a_valid_one() {
        for said in [
            "free",
            "-1",
            "-1/h",
            "1e400",
            "1e400/h",
            "1e3/h",
            "inf/h",
            "nan/h",
            "NaN",
            "0.10",
            "/h",
            "./h",
            "5./h",
            "1.2.3/h",
            "1000001/h",
            "0.1/d",
            "0.1/h/h",
            "0.1/H",
            "99999999999999999999999999999999999999999999999999999999999/h",
        ] {
            let error = of(&format!("price={said},currency=EUR")).unwrap_err();
            assert!(error.contains(said) && error.contains("price=0.10/h"), "{said}: {error}");
        }
        assert!(of("price=1/h").unwrap_err().contains("currency=EUR"));
        for said in ["EUR/USD", "eur", "E", "EURO", "12A", "EUR-USD"] {
            for price in ["price=1/h,", ""] {
                let error = of(&format!("{price}currency={said}")).unwrap_err();
                assert!(error.contains(said) && error.contains("currency=EUR"), "{said}: {error}");
            }
        }
    }
}
