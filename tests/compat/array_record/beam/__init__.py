"""The drop-in for `array_record.beam`, beside the original."""
