"""The side that is called: sessions, requests, subscriptions, and what a handler may ask of its client."""
