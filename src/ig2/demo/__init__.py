"""What the demo explains: small networks trained when first used, and photos that come inside packages."""
