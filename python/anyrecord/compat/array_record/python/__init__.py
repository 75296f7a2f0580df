"""The modules of `array_record.python`: `array_record_module` and `array_record_data_source`."""
